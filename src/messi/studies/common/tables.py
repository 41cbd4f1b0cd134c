"""The tables that several studies share: paired differences to a baseline, and what the models have learned."""

from dataclasses import replace
from typing import Literal

from messi.reports.measures import MEASURES
from messi.reports.statistics import Summary, paired_difference
from messi.reports.table import Cell, Column, Provenance, Row, Table
from messi.studies.common.results import Results, Value, diagnostic, source_accuracy, target_accuracy

Within = Literal["target", "K"]
"""The label that pairs share besides the seed."""
On = Literal["the target", "validation data"]

_WITHIN: dict[Within, str] = {"target": "target", "K": "number of source domains"}
_ON: dict[On, Value] = {"the target": target_accuracy, "validation data": source_accuracy}
DIFFERENCE_COLUMNS = (
    Column("n pairs", "none", 0),
    *(Column(name, "none", 2) for name in ("Difference", "2.5 %", "97.5 %")),
)
_LEARNED = (
    *("source_ece", "target_ece", "energy_distance", "domain_probe", "probe_chance", "routing_entropy"),
    *("load_deviation", "dead_experts", "expert_cosine", "template_divergence"),
)
"""Measures of ``reports.measures``."""
_LEARNED_EXPLANATION = (
    "Mean over the {over}, measured on the validation part of the source domains unless the head says target: "
    "expected calibration error; energy distance between two domains of a class in the classifier's inputs; accuracy "
    "of a linear probe for the domain within a class, and that of chance; entropy of the routing in nats, deviation "
    "of the experts' loads, share of experts with less than 1 % of the load, mean cosine between two experts' "
    "outputs, and Jensen-Shannon divergence in nats between a domain's routing of a class and the mean over domains. "
    "The last five do not apply to a method without a router"
)


def learned(results: Results, *, name: str, provenance: Provenance, over: str = "targets") -> Table:
    """Return what the models of every method have learned, for every data set separately, as means over the targets.

    ``over`` is what the label "target" distinguishes.
    """
    diagnosed = results.diagnosed()
    kinds = dict.fromkeys((str(o.labels["method"]), str(o.labels["data"])) for o in results.outcomes)
    values = [diagnostic(key) for key in _LEARNED]
    rows = tuple(
        Row(
            (method, data),
            tuple(diagnosed.cell(value=value, method=method, data=data) for value in values),
            method.startswith("MESSI"),
        )
        for method, data in kinds
    )
    measures = [MEASURES[key] for key in _LEARNED]
    return Table(
        name=name,
        title="What the models have learned",
        explanation=_LEARNED_EXPLANATION.format(over=over),
        provenance=provenance,
        heads=("Method", "Data"),
        columns=tuple(Column(one.short, one.better, one.digits) for one in measures),
        groups=(rows,),
    )


def differences(
    results: Results,
    *,
    name: str,
    baseline: str,
    provenance: Provenance,
    within: Within = "target",
    on: On = "the target",
) -> Table:
    """Return the differences in accuracy to a baseline, for every data set separately."""
    data = _values(results, "data")
    parts = [{"data": title} for title in data] or [{}]
    rows = [
        Row((method, *labels.values()), cells, method.startswith("MESSI"))
        for labels in parts
        for method, cells in _by_method(Results(results.where(**labels)), baseline, within, _ON[on]).items()
    ]
    return Table(
        name=name,
        title=f"Differences to {baseline} in accuracy on {on}",
        explanation=difference_explanation(_WITHIN[within] if len(_values(results, within)) > 1 else ""),
        provenance=provenance,
        heads=("Method", "Data") if data else ("Method",),
        columns=DIFFERENCE_COLUMNS,
        groups=(tuple(rows),),
        over_seeds=False,
    )


def difference_explanation(group: str) -> str:
    """Return how differences were computed; ``group`` names what pairs share besides the seed, if there are several."""
    pairs, own = (f"{group} and seed", f" with the variance within each {group}") if group else ("seed", "")
    return (
        f"In percentage points, paired by {pairs}; the 95 % interval is Student's{own}. A difference requires two pairs"
        + (f", one for each {group}; an interval requires two for each" if group else "")
    )


def _by_method(results: Results, baseline: str, within: Within, value: Value) -> dict[str, tuple[Cell, ...]]:
    others = [method for method in _values(results, "method") if method != baseline]
    return {method: difference_cells(results, method, baseline, within=within, value=value) for method in others}


def difference_cells(
    results: Results, method: str, baseline: str, *, within: Within = "target", value: Value = target_accuracy
) -> tuple[Cell, ...]:
    """Return the number of pairs, the mean difference and both ends of its interval."""
    ours, theirs = (results.scores(within, value, method=one) for one in (method, baseline))
    pairs = len(ours.keys() & theirs.keys())
    found = paired_difference(ours, theirs, _values(results, within)) if pairs > 1 else None
    means = (pairs, found.mean if found else None, *((found and found.interval) or (None, None)))
    state = _state(results, method, baseline)
    return tuple(replace(state, ours=None if mean is None else Summary(mean, None, pairs)) for mean in means)


def _state(results: Results, method: str, baseline: str) -> Cell:
    """Return the state of the runs of both, the worse of the two."""
    own, other = results.state(method=method), results.state(method=baseline)
    if own.state == "failed" or other.state == "done":
        return own
    return replace(other, reason=f"{baseline}: {other.reason}" if other.reason else "")


def _values(results: Results, label: str) -> list[str]:
    """Return the values of a label in the order of the runs; none if the runs do not have the label."""
    return list(dict.fromkeys(str(o.labels[label]) for o in results.outcomes if label in o.labels))
