"""A picture of a data set: a row per domain, a column per class."""

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from messi.core.errors import MessiError
from messi.data.examples import Examples
from messi.data.image_files import to_picture
from messi.data.images import Images

CELL, GAP, MARGIN, TEXT = 96, 4, 12, 13
MOST_DOMAINS, MOST_CLASSES = 24, 40
_PAPER, _INK, _EMPTY, _FAINT = "#ffffff", "#1b1f24", "#eef0f2", "#8a929c"


def contact_sheet(examples: Examples) -> Image.Image:
    """Draw one example of every class in every domain; of too many, evenly spaced ones, as the caption states."""
    if not isinstance(examples.inputs, Images):
        raise MessiError("This data has features and no images, so no picture can be drawn.")
    domains = _spaced(len(examples.domain_names), MOST_DOMAINS)
    classes = _spaced(len(examples.classes), MOST_CLASSES)
    font = ImageFont.load_default(TEXT)
    left = MARGIN + 10 + max(round(font.getlength(examples.domain_names[d])) for d in domains)
    longest = max(round(font.getlength(examples.classes[c])) for c in classes)
    top = MARGIN + 10 + (longest if longest > CELL else TEXT)
    step = CELL + GAP
    width = max(left + step * len(classes) + MARGIN, 520)
    sheet = Image.new("RGB", (width, top + step * len(domains) + 2 * MARGIN + TEXT), _PAPER)
    draw = ImageDraw.Draw(sheet)
    for column, label in enumerate(classes):
        _write_class_name(sheet, examples.classes[label], font, x=left + step * column, bottom=top - 6)
    for row, domain in enumerate(domains):
        y = top + step * row
        draw.text((left - 8, y + CELL / 2), examples.domain_names[domain], _INK, font, anchor="rm")
        for column, label in enumerate(classes):
            _draw_cell(sheet, draw, examples, (domain, label), (left + step * column, y))
    draw.text((MARGIN, sheet.height - MARGIN), _caption(examples, domains, classes), _FAINT, font, anchor="ls")
    return sheet


def _draw_cell(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, examples: Examples, cell: tuple[int, int], place: tuple[int, int]
) -> None:
    domain, label = cell
    members = ((examples.domains == domain) & (examples.labels == label)).nonzero().squeeze(1)
    x, y = place
    if len(members) == 0:
        draw.rectangle((x, y, x + CELL - 1, y + CELL - 1), _EMPTY)
        draw.text((x + CELL / 2, y + CELL / 2), "none", _FAINT, ImageFont.load_default(TEXT), anchor="mm")
        return
    picture = to_picture(_middle(examples, members)).convert("RGB")
    scale = CELL / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    resized = picture.resize(size, Image.Resampling.NEAREST if scale > 2 else Image.Resampling.LANCZOS)
    sheet.paste(resized, (x + (CELL - size[0]) // 2, y + (CELL - size[1]) // 2))


def _middle(examples: Examples, members: Tensor) -> Tensor:
    image: Tensor = examples.inputs[int(members[len(members) // 2])]
    return image


def _write_class_name(sheet: Image.Image, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, *, x: int,
                   bottom: int) -> None:  # fmt: skip
    length = round(font.getlength(text))
    if length <= CELL:
        ImageDraw.Draw(sheet).text((x + CELL / 2, bottom), text, _INK, font, anchor="ms")
        return
    label = Image.new("RGB", (length + 2, TEXT + 6), _PAPER)
    ImageDraw.Draw(label).text((0, 2), text, _INK, font)
    turned = label.rotate(90, expand=True)
    sheet.paste(turned, (x + (CELL - turned.width) // 2, bottom - turned.height))


def _spaced(number: int, most: int) -> list[int]:
    if number <= most:
        return list(range(number))
    return torch.linspace(0, number - 1, most).round().int().tolist()


def _caption(examples: Examples, domains: list[int], classes: list[int]) -> str:
    def count(shown: int, total: int, what: str) -> str:
        return f"{total} {what}" if shown == total else f"{shown} of {total} {what}"

    of_domains = count(len(domains), len(examples.domain_names), "domains")
    of_classes = count(len(classes), len(examples.classes), "classes")
    return f"{len(examples):,} images, {of_domains}, {of_classes}"
