"""The pictures of ``diagnostics.json``: what each expert is for, and the most confident mistakes."""

from dataclasses import dataclass

from messi.core.records import Role
from messi.core.run_documents import Thumbnail as Picture
from messi.reports.runs import FinishedRun
from messi.reports.tables import percent

LEAST_WEIGHT = 0.05
"""Of an expert for an example that is shown as one of those that it is for."""


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
    """Its share of the weights of all examples."""
    dead: bool
    """Whether it is hardly used, so that there are no pictures."""
    pictures: tuple[Thumbnail, ...]


@dataclass(frozen=True)
class Mistakes:
    """The most confident mistakes on one domain."""

    domain: str
    role: Role
    pictures: tuple[Thumbnail, ...]


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
    parts: dict[Role, dict[str, list[Picture]]] = {
        "target": found.get("mistakes", {}),
        "source_val": found.get("source_mistakes", {}),
    }
    return [
        Mistakes(domain, role, tuple(map(_mistake, pictures)))
        for role, by_domain in parts.items()
        for domain, pictures in by_domain.items()
    ]


def _mistake(picture: Picture) -> Thumbnail:
    sure = f"{percent(picture['confidence'])}\u00a0% sure"
    return Thumbnail(picture["src"], picture["class"], (f"✗ {picture['predicted']}", sure))
