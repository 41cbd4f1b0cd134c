"""What the records and ``diagnostics.json`` say of the experts: heat maps of the routing, the slots, their likeness."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from messi.core.records import Role, RoutingRecord
from messi.reports.domains import by_domain
from messi.reports.number_format import significant
from messi.reports.runs import FinishedRun
from messi.reports.sample_size import examples_seen, seen_in_words
from messi.reports.summary_text import role_in_words

Weights = tuple[float, ...]
MOST_ROWS = 60
"""Rows of a heat map; a page with all classes of all domains would be too large to open."""
MOST_CLASSES, MOST_CELLS = 20, 420
"""Of the slot matrix."""


@dataclass(frozen=True)
class HeatRow:
    """The mean weight of every expert for what the row is about."""

    name: str
    weights: Weights
    count: int | None = None


@dataclass(frozen=True)
class HeatGroup:
    """Rows under one heading; no heading when the rows need none."""

    rows: tuple[HeatRow, ...]
    domain: str = ""
    role: Role = "source_val"


@dataclass(frozen=True)
class HeatMap:
    """A table of expert weights."""

    title: str
    of: str
    """What a row is about."""
    experts: int
    groups: tuple[HeatGroup, ...]
    seen: str = ""
    """How many examples it is of, where rows do not say so."""
    left_out: int = 0
    """Classes that are not shown, those whose routing is the least decided."""


@dataclass(frozen=True)
class Slot:
    """The expert that aligns a class between two domains most."""

    expert: int
    """Counted from 0."""
    strength: float
    """From 0 for a weight of a quarter, which a slot has without any routing mass, to 1 for a weight of 1."""
    text: str


@dataclass(frozen=True)
class SlotMatrix:
    """A row for every class and a column for every pair of domains; None where one of them lacks the class."""

    pairs: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Slot | None, ...]], ...]
    classes_left_out: int
    pairs_left_out: int
    seen: str
    """How many examples it is of."""


@dataclass(frozen=True)
class Similarity:
    """The mean cosine between the outputs of every two experts."""

    cosines: tuple[Weights, ...]
    mean: str
    """Off the diagonal."""
    rank: str


def routing_maps(run: FinishedRun) -> list[HeatMap]:
    """Return P(expert | domain), P(expert | class) and P(expert | domain, class), as far as the run knows them."""
    groups = [
        HeatGroup(tuple(HeatRow(r.label, r.experts, r.count) for r in records), domain, role)
        for (role, domain), records in by_domain(run.of_kind(RoutingRecord)).items()
    ]
    maps = [_domain_map(groups)] if groups else []
    if found := run.diagnostics.get("routing"):
        maps.append(_class_map(_rows(run.diagnostics["classes"], found["by_class"]), _sources_seen(run)))
    return [*maps, _joint_map(groups)] if groups else maps


def slot_matrix(run: FinishedRun) -> SlotMatrix | None:
    """Return which expert aligns which class between which domains, the strongest classes and pairs."""
    found = run.diagnostics.get("slots")
    if not found or not found["pairs"]:
        return None
    weights, names = found["responsibilities"], run.diagnostics["domains"]
    cells = [(p, c, max(cell)) for p, row in enumerate(weights) for c, cell in enumerate(row) if cell is not None]
    if not cells:
        return None
    classes = _strongest([(c, value) for _, c, value in cells], MOST_CLASSES)
    pairs = _strongest([(p, value) for p, _, value in cells], MOST_CELLS // len(classes))
    labels = [f"{names[i]} and {names[j]}" for i, j in found["pairs"]]
    rows = []
    for c in classes:
        name = run.diagnostics["classes"][c]
        rows.append((name, tuple(_slot(weights[p][c], f"{name}: {labels[p]}") for p in pairs)))
    left = len({c for _, c, _ in cells}) - len(classes), len({p for p, _, _ in cells}) - len(pairs)
    return SlotMatrix(tuple(labels[p] for p in pairs), tuple(rows), *left, _sources_seen(run))


def similarity(run: FinishedRun) -> Similarity | None:
    """Return how alike the experts are."""
    found = run.diagnostics.get("similarity")
    mean, rank = (found["mean_off_diagonal"], found["effective_rank"]) if found else (None, None)
    if not found or mean is None or rank is None:
        return None
    cosines = tuple(tuple(round(value, 2) + 0.0 for value in row) for row in found["cosine"])  # no -0.00
    return Similarity(cosines, significant(mean), significant(rank))


def _rows(names: Sequence[str], weights: Sequence[Sequence[float] | None]) -> tuple[HeatRow, ...]:
    return tuple(HeatRow(name, tuple(row)) for name, row in zip(names, weights, strict=True) if row)


def _sources_seen(run: FinishedRun) -> str:
    return seen_in_words([examples_seen(run, "source_val", run.diagnostics["examples"])])


def _whole(group: HeatGroup) -> HeatRow:
    """Return the mean over the classes of a domain, each as often as it occurs."""
    counts = [row.count or 0 for row in group.rows]
    columns = zip(*(row.weights for row in group.rows), strict=True)
    weights = tuple(sum(map(operator.mul, counts, column)) / sum(counts) for column in columns)
    name = group.domain if group.role == "source_val" else f"{group.domain} ({role_in_words(group.role)})"
    return HeatRow(name, weights, sum(counts))


def _domain_map(groups: Sequence[HeatGroup]) -> HeatMap:
    rows = tuple(map(_whole, groups))
    return HeatMap("P(expert | domain)", "domain", len(rows[0].weights), (HeatGroup(rows),))


def _class_map(rows: Sequence[HeatRow], seen: str) -> HeatMap:
    kept = _most_decided(rows, MOST_ROWS)
    shown = tuple(row for row in rows if row.name in kept)
    experts = len(rows[0].weights)
    return HeatMap("P(expert | class)", "class", experts, (HeatGroup(shown),), seen, len(rows) - len(shown))


def _joint_map(groups: Sequence[HeatGroup]) -> HeatMap:
    rows = [row for group in groups for row in group.rows]
    classes = len({row.name for row in rows})
    kept = _most_decided(rows, max(2, 2 * MOST_ROWS // len(groups)))
    shown = (HeatGroup(tuple(r for r in group.rows if r.name in kept), group.domain, group.role) for group in groups)
    title = "P(expert | domain, class)"
    kept_groups = tuple(group for group in shown if group.rows)
    return HeatMap(title, "class", len(rows[0].weights), kept_groups, left_out=classes - len(kept))


def _most_decided(rows: Sequence[HeatRow], number: int) -> set[str]:
    """Return the names whose rows have the highest weights for one expert."""
    highest: dict[str, float] = {}
    for row in rows:
        highest[row.name] = max(highest.get(row.name, 0.0), *row.weights)
    return set(sorted(highest, key=lambda name: -highest[name])[:number])


def _strongest(cells: Sequence[tuple[int, float]], number: int) -> list[int]:
    """Return the indices with the strongest single cells, in their own order."""
    highest: dict[int, float] = {}
    for index, value in cells:
        highest[index] = max(highest.get(index, value), value)
    return sorted(sorted(highest, key=lambda index: -highest[index])[:number])


def _slot(weights: Sequence[float] | None, name: str) -> Slot | None:
    if weights is None:
        return None
    best = max(range(len(weights)), key=lambda expert: weights[expert])
    text = f"{name}\nby expert: " + ", ".join(f"{weight:.2f}" for weight in weights)
    return Slot(best, round(max(0.0, (weights[best] - 0.25) / 0.75), 3), text)
