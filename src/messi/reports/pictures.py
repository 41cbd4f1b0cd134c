"""The pictures of a page: examples of every domain, the examples each expert is used for, and the worst mistakes."""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from PIL import Image

from messi.core.errors import MessiError
from messi.core.files import read_regular
from messi.core.records import ExampleRecord, Role
from messi.core.run_documents import Thumbnail as StoredThumbnail
from messi.core.rundir import RunDir
from messi.reports.number_format import percent
from messi.reports.runs import FinishedRun

PICTURES_PER_DOMAIN = 8
LEAST_WEIGHT = 0.05
"""The smallest weight of an expert with which an example is shown for it."""
_PNG = b"\x89PNG\r\n\x1a\n"
_SMALL = 64
_LARGEST = (96, 96)


class _OfDomain(Protocol):
    @property
    def role(self) -> Role: ...
    @property
    def domain(self) -> str: ...


Item = TypeVar("Item", bound=_OfDomain)


@dataclass(frozen=True)
class Answer:
    """The prediction of the selected model of one run."""

    run: int
    """The place of the run on the page."""
    record: ExampleRecord


@dataclass(frozen=True)
class Picture:
    """An image and the predictions of every run that has it among its examples."""

    role: Role
    domain: str
    label: str
    uri: str
    small: bool
    """Whether to show single pixels when it is enlarged."""
    answers: list[Answer]


@dataclass(frozen=True)
class Thumbnail:
    """A small picture and the lines below it."""

    src: str
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ExpertPictures:
    """The examples to which the router gives one expert the most weight."""

    number: int
    load: float
    """Its share of the total weight."""
    dead: bool
    """Whether it is hardly used; then it has no pictures."""
    pictures: tuple[Thumbnail, ...]


@dataclass(frozen=True)
class Mistakes:
    """The most confident mistakes on one domain."""

    domain: str
    role: Role
    pictures: tuple[Thumbnail, ...]


def by_domain(items: Iterable[Item]) -> dict[tuple[Role, str], list[Item]]:
    """Group items by role and domain, the targets first."""
    groups: dict[tuple[Role, str], list[Item]] = {}
    for item in items:
        groups.setdefault((item.role, item.domain), []).append(item)
    return dict(sorted(groups.items(), key=lambda group: group[0][0] != "target"))


def pictures(runs: Sequence[FinishedRun]) -> dict[tuple[Role, str], list[Picture]]:
    """Return a few example images of every domain; an image that several runs share appears once, and first."""
    found: dict[tuple[Role, str, str, bytes], Picture] = {}
    for place, run in enumerate(runs):
        for record in run.of_kind(ExampleRecord):
            if not (run.path / record.image).parent.exists():  # the run was copied without its pictures
                continue
            RunDir(run.path).require_whole(run.path / record.image)
            content = _read_png(run.path / record.image)
            key = (record.role, record.domain, record.label, content)
            if key not in found:
                small = int.from_bytes(content[16:20]) <= _SMALL
                uri = _uri("png", content) if small else _thumbnail(run.path / record.image, content)
                found[key] = Picture(record.role, record.domain, record.label, uri, small, [])
            found[key].answers.append(Answer(place, record))
    groups = by_domain(found.values())
    return {
        key: sorted(group, key=lambda picture: -len(picture.answers))[:PICTURES_PER_DOMAIN]
        for key, group in groups.items()
    }


def expert_album(run: FinishedRun) -> list[ExpertPictures]:
    """Return every expert with its pictures."""
    found = run.diagnostics.get("pictures", {}).get("experts", [])
    if not found:  # features have no pictures
        return []
    routing = run.diagnostics["routing"]
    album = []
    for number, (load, pictures) in enumerate(zip(routing["load"], found, strict=True), start=1):
        dead = load < routing["dead_threshold"]
        shown = [p for p in pictures if p["weight"] >= LEAST_WEIGHT and not dead]
        thumbnails = (Thumbnail(p["src"], p["class"], (p["domain"], f"weight {p['weight']:.2f}")) for p in shown)
        album.append(ExpertPictures(number, load, dead, tuple(thumbnails)))
    return album


def mistake_album(run: FinishedRun) -> list[Mistakes]:
    """Return the most confident mistakes on every domain, the targets first."""
    found = run.diagnostics.get("pictures", {})
    parts: dict[Role, dict[str, list[StoredThumbnail]]] = {
        "target": found.get("mistakes", {}),
        "source_val": found.get("source_mistakes", {}),
    }
    return [
        Mistakes(domain, role, tuple(map(_mistake, pictures)))
        for role, by_domain in parts.items()
        for domain, pictures in by_domain.items()
    ]


def _thumbnail(path: Path, content: bytes) -> str:
    """Return a photograph as a small image, so that a page can hold hundreds."""
    smaller = io.BytesIO()
    try:
        with Image.open(io.BytesIO(content)) as picture:
            picture.thumbnail(_LARGEST)
            picture.save(smaller, "webp", quality=75)
    except (OSError, SyntaxError) as error:  # Pillow raises these for truncated and for other files
        raise MessiError(f"The example image {path} is damaged: {error}.") from error
    return _uri("webp", smaller.getvalue())


def _uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _read_png(path: Path) -> bytes:
    try:
        content = read_regular(path)
    except OSError as error:
        raise MessiError(f"The example image {path} cannot be read: {error.strerror}.") from error
    if not content.startswith(_PNG):
        raise MessiError(f"The example image {path} is not a PNG file.")
    return content


def _mistake(picture: StoredThumbnail) -> Thumbnail:
    sure = f"confidence {percent(picture['confidence'])}\u00a0%"
    return Thumbnail(picture["src"], picture["class"], (f"✗ {picture['predicted']}", sure))
