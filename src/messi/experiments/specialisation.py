"""Expert specialisation: cosine, effective rank and dead experts on the held-out domains of OfficeHome.

Claim: MESSI's experts are almost orthogonal and fewer of them are dead; the outputs of GMoE's experts are nearly equal.
Command: messi reproduce specialisation --weights FOLDER
Cost: 48 runs of 10,000 steps, and one pass of every model over its target.
With --scale small --jobs 2 it took 45 s on 2 CPU cores.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm, AlgorithmConfig
from messi.algorithms.gmoe import GMoE
from messi.algorithms.messi import MESSI
from messi.algorithms.omoe import OMoE
from messi.data.loader import Loader
from messi.diagnostics.recording import trace
from messi.diagnostics.routing import DEAD_BELOW, RoutingTally, dead_rate
from messi.diagnostics.specialisation import SpecialisationTally
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.methods import MESSI_OT
from messi.experiments.common.paper_numbers import EXPERT_SPECIALIZATION
from messi.reports.charts import HeatGroup, HeatMap, HeatRow, heat_figure
from messi.reports.plan_page import Figure, Section
from messi.reports.table import Column, Row, Table
from messi.studies.common.measuring import Measurement, read_measured
from messi.studies.common.results import Results, Value
from messi.sweeps.plan import PlannedRun

METHODS: dict[str, AlgorithmConfig] = {
    "OMoE": OMoE.Config(),
    "GMoE": GMoE.Config(),
    "MESSI w/o L_div": MESSI.Config(diversity_weight=0.0),
    "MESSI": MESSI_OT,
}
IN_BLOCKS = ("OMoE", "GMoE")
COLUMNS = (
    Column("Mean Offdiag Cos.", "down", 2),
    Column("Effective Rank", "up", 2),
    Column("Dead Expert Rate", "down", 2),
)


# Measuring: with the model.


@dataclass(frozen=True)
class Experts:
    """What the experts of a model do on its target."""

    cosine: Tensor
    """[M, M]"""
    numbers: Tensor
    """[3] one for every column of the table."""


def measure_experts(algorithm: Algorithm, loader: Loader) -> Experts:
    """Accumulate outputs and routing over all examples of the target, batch by batch."""
    data = loader.data
    traces = trace(algorithm, loader, "target")
    first = next(traces)
    similarity = SpecialisationTally(len(first.experts.outputs))
    routing = RoutingTally(
        num_domains=len(data.domains("target")),
        num_classes=len(data.classes),
        num_experts=first.experts.routing.shape[1],
    )
    for one in itertools.chain([first], traces):
        similarity.update(one.experts.outputs)
        routing.update(one.experts.routing, one.labels, one.domains)
    found = similarity.result()
    numbers = (found.mean_off_diagonal, found.effective_rank, dead_rate(routing.result().load))
    return Experts(found.cosine, torch.tensor(numbers, dtype=torch.float64))


EXPERTS = Measurement(
    name="specialisation",
    what="what its experts do on the target",
    settings={"dead_below": DEAD_BELOW},
    measure=measure_experts,
    kind=Experts,
)


# Reporting: from files.


@dataclass(frozen=True, kw_only=True)
class Specialisation(Ablation):
    """How similar the experts of a model are, and how many are used."""

    title: ClassVar[str] = "Expert specialisation on OfficeHome"
    claim: ClassVar[str] = (
        "The mean cosine between two experts is 0.01 with MESSI, 0.50 without L_div, 0.35 with OMoE and 0.92 with GMoE."
    )
    cost: ClassVar[str] = "48 runs of 10,000 steps, and one pass of every model over its target"
    measurement: ClassVar[Measurement[Any] | None] = EXPERTS
    reduced: ClassVar[str] = f"{Ablation.reduced}; OMoE and GMoE, which need a vision transformer, are left out"

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, target and method."""
        return self.planned(self._methods, self.benchmark("office_home"))

    def report(self, results: Results) -> list[Section]:
        """Return the table, and a heat map of the cosines for every method."""
        found = read_measured(results, EXPERTS)
        explanation = (
            "Mean cosine between the outputs of two experts, effective rank of the outputs of all experts, and share "
            f"of experts with a mean routing weight below {DEAD_BELOW:g}, on the whole target; for the experts of "
            "MESSI's head, or of the last block with experts, at the class token"
        )
        table = Table(
            name="specialisation",
            title="Specialisation of the experts",
            explanation=explanation,
            provenance=self.provenance(results),
            heads=("Method",),
            columns=COLUMNS,
            groups=(tuple(self._row(results, found, method) for method in self._methods),),
        )
        pictures = (self._picture(results, found, method) for method in self._methods)
        return [table, *(picture for picture in pictures if picture)]

    def _row(self, results: Results, found: Mapping[Path, Experts], method: str) -> Row:
        paper = self.paper(EXPERT_SPECIALIZATION[method])
        cells = [
            results.cell(paper.get(column.name), _number(found, place), method=method)
            for place, column in enumerate(COLUMNS)
        ]
        return Row((method,), tuple(cells), method == "MESSI")

    def _picture(self, results: Results, found: Mapping[Path, Experts], method: str) -> Figure | None:
        runs = [outcome for outcome in results.where(method=method) if outcome.path in found]
        if not runs:
            return None
        mean = torch.stack([found[run.path].cosine for run in runs]).mean(0)
        names = tuple(str(number) for number in range(1, len(mean) + 1))
        rows = tuple(HeatRow(name, tuple(row)) for name, row in zip(names, mean.tolist(), strict=True))
        svg = heat_figure(HeatMap(f"{method}: cosine between experts", "expert", names, (HeatGroup(rows),)))
        how = self.provenance(Results(runs))
        caption = (
            f"Mean cosine between the outputs of {method}'s experts over the targets, {len(runs)} runs. "
            f"Data: {how.data}. Protocol: {how.protocol}. Version: {how.version}."
        )
        slug = method.replace("w/o L_", "without ").replace(" ", "_").lower()
        return Figure(f"specialisation_{slug}", caption, svg)

    @property
    def _methods(self) -> dict[str, AlgorithmConfig]:
        return {name: method for name, method in METHODS.items() if not (self.small and name in IN_BLOCKS)}


def _number(found: Mapping[Path, Experts], place: int) -> Value:
    return lambda outcome: float(found[outcome.path].numbers[place]) if outcome.path in found else math.nan
