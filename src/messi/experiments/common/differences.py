"""By how much methods exceed a baseline, pair by pair."""

from dataclasses import replace
from typing import Literal

from messi.experiments.common.results import Results, Value, source_accuracy, target_accuracy
from messi.reports.paper_tables import Cell, Column, Provenance, Row, Table
from messi.reports.statistics import Summary, paired_difference

Within = Literal["target", "K"]
"""The label that pairs have in common besides the seed."""
WORDS: dict[Within, str] = {"target": "target", "K": "number of source domains"}
On = Literal["the target", "validation data"]
VALUES: dict[On, Value] = {"the target": target_accuracy, "validation data": source_accuracy}
COLUMNS = (Column("n pairs", "none", 0), *(Column(name, "none", 2) for name in ("Difference", "2.5 %", "97.5 %")))


def differences(
    results: Results,
    *,
    name: str,
    baseline: str,
    provenance: Provenance,
    within: Within = "target",
    on: On = "the target",
) -> Table:
    """Return the table of the differences to a baseline in accuracy, for every data set by itself."""
    data = _values(results, "data")
    parts = [{"data": title} for title in data] or [{}]
    rows = [
        Row((method, *labels.values()), cells, method.startswith("MESSI"))
        for labels in parts
        for method, cells in _by_method(Results(results.where(**labels)), baseline, within, VALUES[on]).items()
    ]
    return Table(
        name=name,
        title=f"Differences to {baseline} in accuracy on {on}",
        explanation=_explanation(WORDS[within] if len(_values(results, within)) > 1 else ""),
        provenance=provenance,
        heads=("Method", "Data") if data else ("Method",),
        columns=COLUMNS,
        groups=(tuple(rows),),
        over_seeds=False,
    )


def _explanation(group: str) -> str:
    pairs, draws = (f"{group} and seed", f" within each {group}") if group else ("seed", "")
    return (
        f"In points, paired by {pairs}, with the 95 % interval of a bootstrap{draws}, which is too narrow for few "
        "seeds. A difference needs two pairs"
        + (f", one for each {group}; an interval needs two for each" if group else "")
    )


def _by_method(results: Results, baseline: str, within: Within, value: Value) -> dict[str, tuple[Cell, ...]]:
    others = [method for method in _values(results, "method") if method != baseline]
    return {method: _cells(results, method, baseline, within, value) for method in others}


def _cells(results: Results, method: str, baseline: str, within: Within, value: Value) -> tuple[Cell, ...]:
    """Return the number of pairs, the mean difference and both ends of its interval."""
    ours, theirs = (results.scores(within, value, method=one) for one in (method, baseline))
    pairs = len(ours.keys() & theirs.keys())
    found = paired_difference(ours, theirs, _values(results, within)) if pairs > 1 else None
    means = (pairs, found.mean if found else None, *((found and found.interval) or (None, None)))
    state = _state(results, method, baseline)
    return tuple(replace(state, ours=None if mean is None else Summary(mean, None, pairs)) for mean in means)


def _state(results: Results, method: str, baseline: str) -> Cell:
    """Return what became of the runs of both, the worse of the two."""
    own, other = results.state(method=method), results.state(method=baseline)
    if own.state == "failed" or other.state == "done":
        return own
    return replace(other, reason=f"{baseline}: {other.reason}" if other.reason else "")


def _values(results: Results, label: str) -> list[str]:
    """Return the values of a label in the order of the runs; none where the runs have no such label."""
    return list(dict.fromkeys(str(o.labels[label]) for o in results.outcomes if label in o.labels))
