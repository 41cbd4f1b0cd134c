"""Thumbnails of examples: those with the largest weight of each expert, and the most confident mistakes.

Legend: N examples, M experts.
"""

import base64
import io
from typing import Any

import torch
from torch import Tensor

from messi.core.seeding import generator
from messi.data.image_files import to_picture
from messi.data.sealed_data import SealedData
from messi.diagnostics.recording import Observed, Recording

SIDE, QUALITY = 56, 60
"""Maximum length of the longer side in pixels, and quality of the WebP: one or two kilobytes."""
MOST, MOST_OF_SOURCE = 8, 3
"""Maximum number of pictures of an expert or a target domain, and of a source domain."""
MOST_DOMAINS = 12
"""Maximum number of domains whose mistakes are shown."""


def experts_pictures(sealed: SealedData, seen: Observed) -> list[list[dict[str, Any]]]:
    """Return the examples with the largest weight of every expert; among equal weights they are drawn at random."""
    if seen.routing is None:
        return []
    order = torch.randperm(len(seen.routing), generator=generator("diagnostics", "pictures"))
    best = order[seen.routing[order].argsort(dim=0, descending=True, stable=True)[:MOST]]
    return [
        [_picture(sealed, seen, row) | {"weight": float(seen.routing[row, expert])} for row in rows.tolist()]
        for expert, rows in enumerate(best.T)
    ]


def mistakes_pictures(sealed: SealedData, seen: Observed, *, most: int) -> dict[str, list[dict[str, Any]]]:
    """Return up to ``most`` mistakes of every domain, the most confident first."""
    found = {}
    for number, name in enumerate(seen.domain_names[:MOST_DOMAINS]):
        rows = surest_mistakes(seen.logits, seen.labels, seen.domains == number, most=most)
        found[name] = [_mistake(sealed, seen, row) for row in rows]
    return found


def surest_mistakes(logits: Tensor, labels: Tensor, candidates: Tensor, *, most: int) -> list[int]:
    """Return up to ``most`` mistakes among the candidates, a mask [N], the most confident first."""
    confidence, answers = logits.double().softmax(-1).max(-1)
    wrong = (candidates & (answers != labels)).nonzero().squeeze(1)
    order = confidence[wrong].argsort(descending=True, stable=True)
    rows: list[int] = wrong[order[:most]].tolist()
    return rows


def _mistake(sealed: SealedData, seen: Observed, row: int) -> dict[str, Any]:
    confidence, answer = seen.logits[row].double().softmax(-1).max(-1)
    picture = _picture(sealed, seen, row)
    del picture["domain"]
    return picture | {"predicted": sealed.classes[int(answer)], "confidence": float(confidence)}


def _picture(sealed: SealedData, seen: Observed, row: int) -> dict[str, Any]:
    return {
        "src": thumbnail(sealed.images(seen.examples[row : row + 1])[0]),
        "class": sealed.classes[int(seen.labels[row])],
        "domain": seen.domain_names[int(seen.domains[row])],
    }


def thumbnail(pixels: Tensor) -> str:
    """Return an image, uint8 [channels, height, width], as a small WebP in a data URL."""
    picture = to_picture(pixels).convert("RGB")
    picture.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    picture.save(content, "WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()


def part(recording: Recording) -> dict[str, Any]:
    """Return the thumbnails; nothing if the data are not images."""
    sealed, source, target = recording.data, recording.source, recording.target
    if not sealed.has_images:
        return {}
    pictures: dict[str, Any] = {}
    if source is not None and source.routing is not None:
        pictures["experts"] = experts_pictures(sealed, source)
    if source is not None:
        pictures["source_mistakes"] = mistakes_pictures(sealed, source, most=MOST_OF_SOURCE)
    if target is not None:
        pictures["mistakes"] = mistakes_pictures(sealed, target, most=MOST)
    return {"pictures": pictures}
