"""What the experts of a model do: heat maps of the routing, the slot matrix, and the similarity of their outputs."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from messi.core.records import RoutingRecord
from messi.reports.charts import HeatGroup, HeatMap, HeatRow
from messi.reports.measures import sample_size, sample_size_text
from messi.reports.number_format import significant
from messi.reports.pictures import by_domain
from messi.reports.result_tables import ROLES
from messi.reports.runs import FinishedRun

MOST_ROWS = 60
"""Of a heat map; a page with all classes of all domains would be too large."""
MOST_CLASSES, MOST_CELLS = 20, 420
"""Of the slot matrix."""
_ONE_EXPERT_EACH = (
    "Every input goes to one expert with weight 1, regardless of the router's confidence: a row contains shares of "
    "inputs, and a routing entropy of 0 does not mean that the router is confident."
)


@dataclass(frozen=True)
class Slot:
    """The expert with the largest alignment weight for a class and two domains."""

    expert: int
    """Counted from 0."""
    strength: float
    """From 0 for a weight of 0.25, that of a slot without routing mass, to 1 for a weight of 1."""
    text: str


@dataclass(frozen=True)
class SlotMatrix:
    """A row for every class and a column for every pair of domains; None if one of them lacks the class."""

    pairs: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Slot | None, ...]], ...]
    classes_left_out: int
    pairs_left_out: int
    sample_size: str


@dataclass(frozen=True)
class Similarity:
    """The mean cosine between the outputs of every two experts."""

    cosines: HeatMap
    mean: str
    """Off the diagonal."""
    rank: str
    """The effective rank."""


def routing_maps(run: FinishedRun) -> list[HeatMap]:
    """Return P(expert | domain), P(expert | class) and P(expert | domain, class), as far as the run has them."""
    groups = [
        HeatGroup(tuple(HeatRow(r.label, r.experts, r.count) for r in records), domain, role)
        for (role, domain), records in by_domain(run.of_kind(RoutingRecord)).items()
    ]
    maps = [_domain_map(groups, _ONE_EXPERT_EACH if run.one_expert_each else "")] if groups else []
    if found := run.diagnostics.get("routing"):
        maps.append(_class_map(run.diagnostics["classes"], found["by_class"], _sample(run)))
    return [*maps, _joint_map(groups)] if groups else maps


def slot_matrix(run: FinishedRun) -> SlotMatrix | None:
    """Return the strongest expert for every class and pair of domains; only the strongest of many are shown."""
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
    return SlotMatrix(tuple(labels[p] for p in pairs), tuple(rows), *left, _sample(run))


def similarity(run: FinishedRun) -> Similarity | None:
    """Return how similar the outputs of the experts are."""
    found = run.diagnostics.get("similarity")
    mean, rank = (found["mean_off_diagonal"], found["effective_rank"]) if found else (None, None)
    if not found or mean is None or rank is None:
        return None
    names = _numbers(len(found["cosine"]))
    rows = (  # adding 0 turns -0.00 into 0.00
        HeatRow(name, tuple(round(value, 2) + 0.0 for value in row))
        for name, row in zip(names, found["cosine"], strict=True)
    )
    cosines = HeatMap("cosine between experts", "expert", names, (HeatGroup(tuple(rows)),))
    return Similarity(cosines, significant(mean), significant(rank))


def _numbers(experts: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, experts + 1))


def _sample(run: FinishedRun) -> str:
    return sample_size_text([sample_size(run, "source_val", run.diagnostics["examples"])])


def _domain_map(groups: Sequence[HeatGroup], note: str) -> HeatMap:
    rows = tuple(map(_whole_domain, groups))
    return HeatMap("P(expert | domain)", "domain", _numbers(len(rows[0].values)), (HeatGroup(rows),), note)


def _whole_domain(group: HeatGroup) -> HeatRow:
    """Return the mean over the classes of a domain, weighted by their frequency."""
    counts = [row.count or 0 for row in group.rows]
    columns = zip(*(_values(row) for row in group.rows), strict=True)
    values = tuple(sum(map(operator.mul, counts, column)) / sum(counts) for column in columns)
    name = group.domain if group.role == "source_val" else f"{group.domain} ({ROLES[group.role]})"
    return HeatRow(name, values, sum(counts))


def _class_map(names: Sequence[str], weights: Sequence[Sequence[float] | None], sample: str) -> HeatMap:
    rows = [HeatRow(name, tuple(row)) for name, row in zip(names, weights, strict=True) if row]
    kept = _most_concentrated(rows, MOST_ROWS)
    shown = tuple(row for row in rows if row.name in kept)
    columns = _numbers(len(rows[0].values))
    note = " ".join([f"Validation part of the source domains, {sample}.", *_left_out(len(rows) - len(shown))])
    return HeatMap("P(expert | class)", "class", columns, (HeatGroup(shown),), note)


def _joint_map(groups: Sequence[HeatGroup]) -> HeatMap:
    rows = [row for group in groups for row in group.rows]
    classes = len({row.name for row in rows})
    kept = _most_concentrated(rows, max(2, 2 * MOST_ROWS // len(groups)))
    shown = (HeatGroup(tuple(r for r in group.rows if r.name in kept), group.domain, group.role) for group in groups)
    kept_groups = tuple(group for group in shown if group.rows)
    columns = _numbers(len(rows[0].values))
    return HeatMap("P(expert | domain, class)", "class", columns, kept_groups, "".join(_left_out(classes - len(kept))))


def _left_out(classes: int) -> list[str]:
    return [f"The classes with the most concentrated routing; {classes} more are not shown."] if classes else []


def _most_concentrated(rows: Sequence[HeatRow], number: int) -> set[str]:
    """Return the names whose rows have the highest weights for one expert."""
    highest: dict[str, float] = {}
    for row in rows:
        highest[row.name] = max(highest.get(row.name, 0.0), *_values(row))
    return set(sorted(highest, key=lambda name: -highest[name])[:number])


def _values(row: HeatRow) -> list[float]:
    return [value or 0.0 for value in row.values]


def _strongest(cells: Sequence[tuple[int, float]], number: int) -> list[int]:
    """Return the indices with the strongest single cells, in ascending order."""
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
