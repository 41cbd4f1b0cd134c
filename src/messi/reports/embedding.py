"""Examples as points in a plane, before and after the expert head, coloured by domain, class or expert."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from messi.core.run_documents import Embedding as Points
from messi.reports.runs import FinishedRun

LOOKS = 24
"""Combinations of colours and kinds of dots for the most frequent names; the rest share one grey look."""
SIZE = 1000
"""The side of the square that contains all points."""


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    look: int
    name: str
    count: int


@dataclass(frozen=True)
class Marks:
    """The points of one domain, class and expert."""

    looks: dict[str, int]
    """By the way to colour them."""
    text: str
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Plane:
    """One plot."""

    title: str
    marks: tuple[Marks, ...]


@dataclass(frozen=True)
class Embedding:
    """The plots of one run, and a legend for each way to colour them."""

    planes: tuple[Plane, ...]
    legends: dict[str, tuple[Key, ...]]
    size: int


def embedding_of(run: FinishedRun) -> Embedding | None:
    """Return the embedding of a run's examples; None if it has none."""
    found = run.diagnostics.get("embedding")
    if not found or not found["before"]:
        return None
    names = {"domain": _domains(run), "class": run.diagnostics["classes"]}
    indices = {"domain": found["domain"], "class": found["class"]}
    if "expert" in found:
        names["expert"] = [f"expert {number}" for number in range(1, run.diagnostics["experts"] + 1)]
        indices["expert"] = found["expert"]
    legends = {way: _legend(indices[way], names[way]) for way in names}
    looks = {way: {key.name: key.look for key in legend} for way, legend in legends.items()}
    groups: dict[tuple[str, ...], list[int]] = {}
    for index in range(len(found["before"])):
        groups.setdefault(tuple(names[way][indices[way][index]] for way in names), []).append(index)
    planes = []
    for title, points in _parts(found).items():
        places = _fit(points)
        marks = (_marks(key, looks, [places[index] for index in members]) for key, members in groups.items())
        planes.append(Plane(title, tuple(marks)))
    return Embedding(tuple(planes), legends, len(found["before"]))


def _parts(found: Points) -> dict[str, list[tuple[float, float]]]:
    """Return the points of every plot; there is one plot if nothing is between encoder and classifier."""
    if found["after"] == found["before"]:
        return {"Encoder output and classifier input": found["before"]}
    return {"Encoder output": found["before"], "Classifier input": found["after"]}


def _domains(run: FinishedRun) -> list[str]:
    names, sources = run.diagnostics["embedding_domains"], len(run.diagnostics["domains"])
    return [*names[:sources], *(f"{name} (target)" for name in names[sources:])]


def _legend(indices: Sequence[int], names: Sequence[str]) -> tuple[Key, ...]:
    """Assign a look to every name; if there are too many, all but the most frequent share one."""
    counts = Counter(indices)
    kept = sorted(sorted(counts, key=lambda index: -counts[index])[:LOOKS])
    keys = [Key(look, names[index], counts[index]) for look, index in enumerate(kept)]
    if rest := sum(counts.values()) - sum(key.count for key in keys):
        keys.append(Key(LOOKS, f"{len(counts) - len(kept)} more", rest))
    return tuple(keys)


def _marks(names: tuple[str, ...], looks: dict[str, dict[str, int]], points: Sequence[tuple[int, int]]) -> Marks:
    own = {way: known.get(name, LOOKS) for (way, known), name in zip(looks.items(), names, strict=True)}
    return Marks(own, "\n".join(names), tuple(points))


def _fit(points: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Scale points to the square, both axes equally, so that distances can be compared."""
    lows, highs = ([pick(point[axis] for point in points) for axis in (0, 1)] for pick in (min, max))
    scale = SIZE / (max(high - low for low, high in zip(lows, highs, strict=True)) or 1.0)
    middles = [(low + high) / 2 for low, high in zip(lows, highs, strict=True)]
    return [(round(SIZE / 2 + scale * (x - middles[0])), round(SIZE / 2 - scale * (y - middles[1]))) for x, y in points]
