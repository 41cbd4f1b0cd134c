"""Whether experts differ: cosine, effective rank and dead experts on the held-out domains of OfficeHome.

Claim: MESSI's experts are almost orthogonal and fewer of them are dead; GMoE's experts say nearly the same.
Command: messi reproduce specialisation --weights FOLDER
Cost: 48 runs of 10,000 steps, and a pass of every model over its target.
With --scale small --jobs 2 it took 45 s on 2 CPU cores.
"""

import itertools
from dataclasses import dataclass
from typing import ClassVar

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
from messi.experiments.common.base import Figure, Section
from messi.experiments.common.measured import Measured, Measurement, measured
from messi.experiments.common.methods import MESSI_OT
from messi.experiments.common.results import Results, Value
from messi.experiments.paper.ablations import EXPERT_SPECIALIZATION
from messi.reports.paper_tables import Column, Row, Table
from messi.reports.plots import heat_map
from messi.sweeps.plan import Planned

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


@dataclass(frozen=True)
class Experts:
    """What the experts of a model do with its target."""

    cosine: Tensor
    """[M, M]"""
    numbers: Tensor
    """[3] one for every column of the table."""


def look(algorithm: Algorithm, loader: Loader) -> Experts:
    """Add up what the experts do with every example of the target, batch by batch."""
    sealed = loader.data
    traces = trace(algorithm, loader, "target")
    first = next(traces)
    similarity = SpecialisationTally(len(first.experts.outputs))
    routing = RoutingTally(
        num_domains=len(sealed.domains("target")),
        num_classes=len(sealed.classes),
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
    what="what its experts do with the target",
    settings={"dead_below": DEAD_BELOW},
    measure=look,
    kind=Experts,
)


@dataclass(frozen=True, kw_only=True)
class Specialisation(Ablation):
    """How alike the experts of a model are, and how many are used."""

    title: ClassVar[str] = "Expert specialisation on OfficeHome"
    claim: ClassVar[str] = (
        "The mean cosine between two experts is 0.01 with MESSI, 0.50 without L_div, 0.35 with OMoE and 0.92 with GMoE."
    )
    cost: ClassVar[str] = "48 runs of 10,000 steps, and a pass of every model over its target"
    reduced: ClassVar[str] = f"{Ablation.reduced}; OMoE and GMoE, which need a vision transformer, are left out"

    def runs(self) -> list[Planned]:
        """Return a run for every seed, target and method."""
        return self.planned(self._methods, self.benchmark("office_home"))

    def sections(self, results: Results) -> list[Section]:
        """Return the table, and the cosines of every method as a picture."""
        found = measured(results, EXPERTS)
        explanation = (
            "Mean cosine between the outputs of two experts, effective rank of the outputs of all experts, and share "
            f"of experts with a mean routing below {DEAD_BELOW:g}, on all of the target; the experts of MESSI's head, "
            "or of the last block that has experts, for the class token"
        )
        table = Table(
            name="specialisation",
            title="Specialisation of the experts",
            explanation=explanation,
            provenance=self.provenance(results),
            heads=("Method",),
            columns=COLUMNS,
            groups=(tuple(self._row(found, method) for method in self._methods),),
        )
        pictures = (self._picture(found, method) for method in self._methods)
        return [table, *(picture for picture in pictures if picture)]

    def _row(self, found: Measured[Experts], method: str) -> Row:
        paper = self.paper(EXPERT_SPECIALIZATION[method])
        cells = [
            found.cell(paper.get(column.name), _number(found, place), method=method)
            for place, column in enumerate(COLUMNS)
        ]
        return Row((method,), tuple(cells), method == "MESSI")

    def _picture(self, found: Measured[Experts], method: str) -> Figure | None:
        runs = [outcome for outcome in found.where(method=method) if outcome.path in found.found]
        if not runs:
            return None
        mean = torch.stack([found.found[run.path].cosine for run in runs]).mean(0)
        names = [str(number) for number in range(1, len(mean) + 1)]
        svg = heat_map(f"{method}: cosine between experts", names, names, mean.tolist())
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


def _number(found: Measured[Experts], place: int) -> Value:
    return lambda outcome: float(found.found[outcome.path].numbers[place])
