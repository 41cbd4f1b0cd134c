"""Routing-aware alignment: which slots MESSI and its controls align, and how well.

Claim: Global-MoE and Random-Subset-MoE have equal responsibilities (r = 1.00), MESSI has different ones (r = -0.20). On
the slots that MESSI selects, its domains are closer to each other than those of the controls.
Command: messi reproduce alignment --data pacs --weights FOLDER
Cost: 162 runs of 5,000 to 15,000 steps, 36 of 5,000 on PACS, and one pass of every model over its validation data;
1,000 steps of MESSI-S-OT on PACS take 9.4 s on an H200 (benchmarks/bench_train_gpu.py).
With --scale small --jobs 2 it took a minute on 2 CPU cores.

Responsibilities come from each model's own router, as the text defines them for "each method A". With the other
reading, the weights that the controls train with, r is undefined, since Global-MoE's are constant. The numbers agree:
if routers send everything to one of M = 6 experts, r is 1 for the same expert and -1 / (M - 1) = -0.20 for a different
one. The paper does not state which share of the slots counts as selected. One expert has a sixth of them. If each
router uses a different expert, the selected slots overlap by chance in J = 0.04 for a share of 0.2, and not at all for
0.1.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.common.base import Algorithm
from messi.core.config import Bounds
from messi.core.seeding import generator
from messi.data.loader import Loader
from messi.diagnostics.alignment import class_conditional_energy, energy_on_slots
from messi.diagnostics.recording import PER_DOMAIN, slot_rule, trace
from messi.diagnostics.routing import RoutingTally
from messi.diagnostics.sampling import PER_CELL, at_most_per_cell
from messi.diagnostics.slots import correlation, overlap, responsibilities, top_slots
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.benchmarks import BENCHMARKS, Benchmark, DataName
from messi.experiments.common.methods import GLOBAL_MOE, MESSI_OT, RANDOM_SUBSET_MOE
from messi.experiments.common.paper_numbers import DIAGNOSTIC, ROUTING_AWARE_ALIGNMENT
from messi.reports.plan_page import Section
from messi.reports.statistics import Summary, target_average, whole_seeds
from messi.reports.table import Cell, Column, Published, Row, Table
from messi.studies.common.measuring import Measurement, read_measured
from messi.studies.common.results import Results
from messi.sweeps.plan import Outcome, PlannedRun

METHODS = {"Global-MoE": GLOBAL_MOE, "Random-Subset-MoE": RANDOM_SUBSET_MOE, "MESSI": MESSI_OT}
SIMILARITIES = ("r(G,R)", "J(G,R)", "r(M,G)", "J(M,G)", "r(M,R)", "J(M,R)")
DISTANCES = ("Ctrl. Delta", "MESSI Delta", "Ctrl. Delta, unit", "MESSI Delta, unit")
COLUMNS = (*(Column(name, "none", 2) for name in SIMILARITIES), *(Column(name, "none", 3) for name in DISTANCES))
SHORT = {
    "Resp. corr. r": ("r(G,R)", "r(M,G)"),
    "Slot overlap J": ("J(G,R)", "J(M,G)"),
    "Discrepancy": ("Ctrl. Delta", "MESSI Delta"),
    "Discrepancy, unit": ("Ctrl. Delta, unit", "MESSI Delta, unit"),
}
"""The rows of the table in the main text, on PACS: the columns above for the control and for MESSI."""
UNIT = ", unit"
LONG = {"TerraInc": "TerraIncognita"}
"""Names of data sets in this table that differ from those in the main table."""
Found = Mapping[tuple[str, int], Mapping[str, float]]
"""The columns, by target and seed."""


# Measuring: with the model.


@dataclass(frozen=True)
class Slots:
    """All slots of a model on the validation part of its source domains; NaN for a slot without examples.

    Any share of them can be selected later, without the model. Legend: M experts, P pairs of domains, C classes.
    """

    weights: Tensor
    """[P, C, M] the responsibilities of its own router."""
    apart: Tensor
    """[M, P, C] the energy distance between the domains in the expert's outputs."""
    apart_unit: Tensor
    """[M, P, C] the same for outputs scaled to unit length."""


def measure_slots(algorithm: Algorithm, loader: Loader) -> Slots:
    """Measure all slots, on at most ``PER_DOMAIN`` examples of a domain; distances on ``PER_CELL`` of a class in it."""
    data = loader.data
    sizes = {"num_domains": len(data.domains("source_val")), "num_classes": len(data.classes)}
    traces = list(trace(algorithm, loader, "source_val", most=PER_DOMAIN))
    labels, domains = torch.cat([one.labels for one in traces]), torch.cat([one.domains for one in traces])
    routing = torch.cat([one.experts.routing for one in traces])
    tally = RoutingTally(**sizes, num_experts=routing.shape[1])
    tally.update(routing, labels, domains)
    rows = at_most_per_cell(labels, domains, most=PER_CELL, generator=generator("slots"))
    outputs = torch.cat([one.experts.outputs for one in traces], dim=1)[:, rows]

    def apart(features: Tensor) -> Tensor:
        return class_conditional_energy(features, labels[rows], domains[rows], **sizes)

    return Slots(
        weights=responsibilities(tally.result().by_domain_and_class, slot_rule(algorithm)),
        apart=apart(outputs),
        apart_unit=apart(functional.normalize(outputs, dim=-1)),
    )


SLOTS = Measurement(
    name="slots",
    what="its slots",
    settings={"per_domain": PER_DOMAIN, "per_cell": PER_CELL},
    measure=measure_slots,
    kind=Slots,
)


# Reporting: from files.


def compare(everywhere: Slots, at_random: Slots, messi: Slots, *, share: float) -> dict[str, float]:
    """Return the columns of the paper's table for three models with the same data, initial weights and split."""
    seen = {"G": everywhere, "R": at_random, "M": messi}
    chosen = {name: top_slots(one.weights, share=share) for name, one in seen.items()}
    numbers: dict[str, float] = {}
    for a, b in (("G", "R"), ("M", "G"), ("M", "R")):
        numbers[f"r({a},{b})"] = correlation(seen[a].weights, seen[b].weights)
        numbers[f"J({a},{b})"] = overlap(chosen[a], chosen[b])
    plain = {name: energy_on_slots(one.apart, chosen["M"]) for name, one in seen.items()}
    unit = {name: energy_on_slots(one.apart_unit, chosen["M"]) for name, one in seen.items()}
    for apart, ending in ((plain, ""), (unit, ", unit")):
        numbers[f"Ctrl. Delta{ending}"] = statistics.fmean((apart["G"], apart["R"]))
        numbers[f"MESSI Delta{ending}"] = apart["M"]
    return numbers


@dataclass(frozen=True, kw_only=True)
class Alignment(Ablation):
    """Similarity of the selected slots, and energy distance on the slots that MESSI selects."""

    title: ClassVar[str] = "Routing-aware alignment controls"
    claim: ClassVar[str] = (
        "MESSI selects different slots than both controls (r = -0.20, J = 0.04 on PACS) and reaches a smaller "
        "discrepancy on them (0.096 instead of 0.235)."
    )
    cost: ClassVar[str] = (
        "162 runs of 5,000 to 15,000 steps, 36 of 5,000 on PACS, where 1,000 steps of MESSI-S-OT take 9.4 s on an H200"
    )
    measurement: ClassVar[Measurement[Any] | None] = SLOTS

    data: tuple[DataName, ...] = tuple(BENCHMARKS)
    """Some of the paper's data sets; the small scale uses other data."""
    share: Annotated[float, Bounds(above=0, maximum=1)] = 0.2
    """Share of the slots that counts as selected, those with the largest responsibilities."""

    def runs(self) -> list[PlannedRun]:
        """Return a run for every data set, seed, target and method."""
        return [run for benchmark in self._benchmarks for run in self.planned(METHODS, benchmark)]

    def report(self, results: Results) -> list[Section]:
        """Return the table of the appendix and, for PACS, that of the main text."""
        slots = read_measured(results, SLOTS)
        found = {benchmark.title: self._compared(results, slots, benchmark) for benchmark in self._benchmarks}
        rows = tuple(self._row(results, benchmark, found[benchmark.title]) for benchmark in self._benchmarks)
        whole = Table(
            name="alignment",
            title="Responsibilities and selected slots",
            explanation=self._explanation(),
            provenance=self.provenance(results),
            heads=("Data",),
            columns=COLUMNS,
            groups=(rows,),
        )
        short = [benchmark for benchmark in self._benchmarks if benchmark == self.benchmark("pacs")]
        return [whole, *(self._short(results, benchmark, found[benchmark.title]) for benchmark in short)]

    @property
    def _benchmarks(self) -> tuple[Benchmark, ...]:
        names: tuple[DataName, ...] = ("pacs",) if self.small else self.data
        return tuple(self.benchmark(name) for name in dict.fromkeys(names))

    def _compared(self, results: Results, slots: Mapping[Path, Slots], benchmark: Benchmark) -> Found:
        """Compare the three models of every target and seed for which all were measured."""
        found = {}
        for target in benchmark.targets:
            for seed in self.all_seeds():
                runs = [_run(results, method, benchmark.title, target, seed) for method in METHODS]
                if all(run.path in slots for run in runs):
                    everywhere, at_random, messi = (slots[run.path] for run in runs)
                    found[target, seed] = compare(everywhere, at_random, messi, share=self.share)
        return found

    def _row(self, results: Results, benchmark: Benchmark, found: Found) -> Row:
        paper = self.paper(ROUTING_AWARE_ALIGNMENT.get(LONG.get(benchmark.title, benchmark.title), {}))
        return Row((benchmark.title,), self._cells(results, benchmark, found, [c.name for c in COLUMNS], paper))

    def _short(self, results: Results, benchmark: Benchmark, found: Found) -> Table:
        rows = []
        for name, columns in SHORT.items():
            published = self.paper(DIAGNOSTIC[name.removesuffix(UNIT)])
            paper = dict(zip((c.removesuffix(UNIT) for c in columns), published.values(), strict=False))
            rows.append(Row((name,), self._cells(results, benchmark, found, columns, paper)))
        of_data = Results(results.where(data=benchmark.title))
        return Table(
            name="alignment_short",
            title=f"Selected slots on {benchmark.title} in short",
            explanation=(
                "Control: r and J of Global-MoE and Random-Subset-MoE, and the mean of their Delta; MESSI: r and J "
                f"with Global-MoE, and its Delta; as in the table 'alignment', {self.share:.0%} of the slots selected"
            ),
            provenance=self.provenance(of_data),
            heads=("Metric",),
            columns=(Column("Control", "none", 3), Column("MESSI", "none", 3)),
            groups=(tuple(rows),),
        )

    def _cells(
        self,
        results: Results,
        benchmark: Benchmark,
        found: Found,
        columns: Sequence[str],
        paper: Mapping[str, Published],
    ) -> tuple[Cell, ...]:
        state = results.state(data=benchmark.title)
        return tuple(
            dataclasses.replace(
                state,
                ours=_average(found, column, list(benchmark.targets)),
                paper=paper.get(column.removesuffix(UNIT)),
            )
            for column in columns
        )

    def _explanation(self) -> str:
        return (
            "Responsibilities of each model's own router on the validation part of the source domains, mean over the "
            f"targets: their correlation r, and the overlap J of the {self.share:.0%} of the slots with the largest "
            "ones (G: Global-MoE, R: Random-Subset-MoE, M: MESSI). Delta is the mean energy distance between the "
            "domains in the experts' outputs on the slots that MESSI selects, for unscaled outputs and for outputs "
            f"scaled to unit length (the paper states neither this nor the share), on at most {PER_DOMAIN:,} examples "
            f"of a domain and {PER_CELL} of a class in it"
        )


def _run(results: Results, method: str, data: str, target: str, seed: int) -> Outcome:
    (run,) = results.where(method=method, data=data, target=target, seed=seed)
    return run


def _average(found: Found, column: str, targets: Sequence[str]) -> Summary | None:
    """Average over targets seed by seed, then over the seeds that have all targets."""
    scores = {key: numbers[column] for key, numbers in found.items()}
    return target_average(whole_seeds(scores, targets), targets)
