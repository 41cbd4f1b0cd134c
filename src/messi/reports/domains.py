"""What is shown domain by domain: the routing heat map and the example images."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from messi.core.errors import MessiError
from messi.core.records import ExampleRecord, Role
from messi.reports.runs import FinishedRun

_PNG = b"\x89PNG\r\n\x1a\n"


class _OfDomain(Protocol):
    @property
    def role(self) -> Role: ...
    @property
    def domain(self) -> str: ...


Item = TypeVar("Item", bound=_OfDomain)


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


def pictures(runs: Sequence[FinishedRun]) -> list[Picture]:
    """Return the example images of all runs; one that several runs have appears once."""
    found: dict[tuple[Role, str, str, bytes], Picture] = {}
    for place, run in enumerate(runs):
        for record in run.of_kind(ExampleRecord):
            content = _read_png(run.path / record.image)
            key = (record.role, record.domain, record.label, content)
            if key not in found:
                uri = "data:image/png;base64," + base64.b64encode(content).decode()
                width = int.from_bytes(content[16:20])
                found[key] = Picture(record.role, record.domain, record.label, uri, width <= 64, [])
            found[key].answers.append(Answer(place, record))
    return list(found.values())


def _read_png(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MessiError(f"The example image {path} cannot be read: {error.strerror}.") from error
    if not content.startswith(_PNG):
        raise MessiError(f"The example image {path} is not a PNG file.")
    return content
