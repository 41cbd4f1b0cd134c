"""The pictures of ``diagnostics.json``: what each expert is for, and the most confident mistakes."""

from dataclasses import dataclass

from messi.reports.runs import FinishedRun
from messi.reports.tables import percent


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
    load: float | None
    """Its share of all examples."""
    pictures: tuple[Thumbnail, ...]


def expert_album(run: FinishedRun) -> list[ExpertPictures]:
    """Return every expert with its pictures."""
    found = run.diagnostics.get("pictures", {}).get("experts", [])
    if not found:  # features have no pictures
        return []
    loads = run.diagnostics.get("routing", {}).get("load", [None] * len(found))
    return [
        ExpertPictures(
            number,
            load,
            tuple(Thumbnail(p["src"], p["class"], (p["domain"], f"weight {p['weight']:.2f}")) for p in pictures),
        )
        for number, (load, pictures) in enumerate(zip(loads, found, strict=True), start=1)
    ]


def mistake_album(run: FinishedRun) -> dict[str, list[Thumbnail]]:
    """Return the most confident mistakes on every target domain."""
    found = run.diagnostics.get("pictures", {}).get("mistakes", {})
    return {
        domain: [
            Thumbnail(p["src"], p["class"], (f"✗ {p['predicted']}", f"{percent(p['confidence'])}\u00a0% sure"))
            for p in pictures
        ]
        for domain, pictures in found.items()
    }
