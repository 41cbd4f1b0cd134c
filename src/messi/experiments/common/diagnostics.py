"""What finished runs found about themselves, as values of a table."""

import math
from typing import Any

from messi.core.rundir import RunDir
from messi.experiments.common.results import Results, Value
from messi.reports.paper_tables import Column, Provenance, Row, Table
from messi.sweeps.plan import Outcome


def diagnostic(*keys: str, unit: float = 1.0) -> Value:
    """Return what takes a number from the diagnostics of a run, by its keys, in a unit; NaN where there is none."""

    def value(outcome: Outcome) -> float:
        found: Any = RunDir(outcome.path).read_diagnostics()
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return math.nan if found is None else float(found) / unit

    return value


COLUMNS: dict[Column, Value] = {
    Column("ECE val. %", "down"): diagnostic("calibration", "source_val", "ece", unit=0.01),
    Column("ECE target %", "down"): diagnostic("calibration", "target", "ece", unit=0.01),
    Column("Energy", "none", 2): diagnostic("discrepancy", "energy"),
    Column("Domain probe %", "none"): diagnostic("probe", "accuracy", unit=0.01),
    Column("Chance %", "none"): diagnostic("probe", "chance", unit=0.01),
    Column("Routing ent.", "none", 3): diagnostic("routing", "entropy"),
    Column("Load std.", "none", 3): diagnostic("routing", "load_std"),
    Column("Dead %", "none"): diagnostic("routing", "dead_rate", unit=0.01),
    Column("Expert cos.", "none", 3): diagnostic("similarity", "mean_off_diagonal"),
    Column("Routing JS (1e-4)", "none"): diagnostic("routing", "template_divergence", unit=1e-4),
}
EXPLANATION = (
    "The mean over the targets, on the held-out part of the source domains unless a head says target: expected "
    "calibration error; energy distance between two domains of a class in what the classifier reads; "
    "accuracy of a linear probe for the domain within a class, and that of chance; entropy of the routing in nats, "
    "deviation of the experts' loads, share of experts with less than 1 % of the load, mean cosine of two experts' "
    "outputs, and Jensen-Shannon divergence in nats between a domain's routing of a class and the mean over domains. "
    "A method without a router has none of the last five"
)


def learned(results: Results, *, name: str, provenance: Provenance) -> Table:
    """Return the table of what the models of every method have learned, for every data set by itself."""
    diagnosed = results.readable(RunDir.read_diagnostics)
    kinds = dict.fromkeys((str(o.labels["method"]), str(o.labels["data"])) for o in results.outcomes)
    rows = tuple(
        Row(
            (method, data),
            tuple(diagnosed.cell(value=value, method=method, data=data) for value in COLUMNS.values()),
            method.startswith("MESSI"),
        )
        for method, data in kinds
    )
    return Table(
        name=name,
        title="What the models have learned",
        explanation=EXPLANATION,
        provenance=provenance,
        heads=("Method", "Data"),
        columns=tuple(COLUMNS),
        groups=(rows,),
    )
