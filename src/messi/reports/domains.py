"""What is shown domain by domain: accuracies and example images."""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from PIL import Image

from messi.core.errors import MessiError
from messi.core.files import read_regular
from messi.core.records import EvaluationRecord, ExampleRecord, Role
from messi.core.rundir import RunDir
from messi.reports.runs import FinishedRun

PICTURES_PER_DOMAIN = 8
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
class DomainRow:
    """How every run did on one domain; None where it was not measured."""

    role: Role
    domain: str
    results: tuple[EvaluationRecord | None, ...]


@dataclass(frozen=True)
class Answer:
    """What the selected model of one run said of an image."""

    run: int
    """The place of the run on the page."""
    record: ExampleRecord


@dataclass(frozen=True)
class Picture:
    """An image and what every run that has it among its examples said of it."""

    role: Role
    domain: str
    label: str
    uri: str
    small: bool
    """Whether single pixels should stay visible when it is enlarged."""
    answers: list[Answer]


def by_domain(items: Iterable[Item]) -> dict[tuple[Role, str], list[Item]]:
    """Group items by role and domain, the targets first."""
    groups: dict[tuple[Role, str], list[Item]] = {}
    for item in items:
        groups.setdefault((item.role, item.domain), []).append(item)
    return dict(sorted(groups.items(), key=lambda group: group[0][0] != "target"))


def domain_rows(runs: Sequence[FinishedRun]) -> list[DomainRow]:
    """Return how the selected models did on every domain in every role, the targets first."""
    measured = [
        {(r.role, r.domain): r for role in ("target", run.validation, "source_test") for r in run.selected(role)}
        for run in runs
    ]
    keys = dict.fromkeys(key for found in measured for key in found)
    rows = [DomainRow(*key, tuple(found.get(key) for found in measured)) for key in keys]
    return sorted(rows, key=lambda row: row.role != "target")


def pictures(runs: Sequence[FinishedRun]) -> dict[tuple[Role, str], list[Picture]]:
    """Return a few example images of every domain; one that several runs have appears once, and before others."""
    found: dict[tuple[Role, str, str, bytes], Picture] = {}
    for place, run in enumerate(runs):
        for record in run.of_kind(ExampleRecord):
            if not (run.path / record.image).parent.exists():  # a run that was copied without its pictures
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


def _thumbnail(path: Path, content: bytes) -> str:
    """Return a photograph small enough that a page can hold hundreds."""
    smaller = io.BytesIO()
    try:
        with Image.open(io.BytesIO(content)) as picture:
            picture.thumbnail(_LARGEST)
            picture.save(smaller, "webp", quality=75)
    except (OSError, SyntaxError) as error:  # what Pillow raises for half a file and for one with other content
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
