"""Routing-aware alignment: whether MESSI aligns other slots than its controls, and aligns them better.

Claim: Global-MoE and Random-Subset-MoE have the same responsibilities (r = 1.00), MESSI others (r = -0.20); on the
slots that MESSI selects, its domains are nearer to each other than the controls' are.
Command: messi reproduce alignment --data pacs --weights FOLDER
Cost: 162 runs of 5,000 to 15,000 steps, 36 of 5,000 on PACS, and a pass of every model over its validation data;
1,000 steps of MESSI-S-OT on PACS take 9.4 s on an H200 (benchmarks/bench_train_gpu.py).
With --scale small --jobs 2 it took a minute on 2 CPU cores.

Responsibilities are those of each model's own router, as the text defines them for "each method A". The other reading,
the weights that the controls train with, has no r at all: Global-MoE's are constant. The numbers agree: where routers
send everything to one of M = 6 experts, r is 1 for the same expert and -1 / (M - 1) = -0.20 for another one.
The share of slots that counts as selected is not given. One expert has a sixth of them; of routers that each use an
expert of their own, the selected slots overlap by chance in J = 0.04 with a share of 0.2, and not at all with 0.1.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from messi.core.config import Bounds
from messi.diagnostics.recording import PER_DOMAIN
from messi.diagnostics.sampling import PER_CELL
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.base import Section
from messi.experiments.common.domainbed.data import BENCHMARKS, Benchmark, DataName
from messi.experiments.common.measured import Measured, measured
from messi.experiments.common.methods import GLOBAL_MOE, MESSI_OT, RANDOM_SUBSET_MOE
from messi.experiments.common.results import Results
from messi.experiments.common.slots import SLOTS, Seen, compare
from messi.experiments.paper.ablations import DIAGNOSTIC, ROUTING_AWARE_ALIGNMENT
from messi.reports.paper_tables import Cell, Column, Published, Row, Table
from messi.reports.statistics import Summary, target_average, whole_seeds
from messi.sweeps.plan import Outcome, Planned

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
"""The rows of the main text's table on PACS: control and MESSI, as columns above."""
UNIT = ", unit"
LONG = {"TerraInc": "TerraIncognita"}
"""What this table of the paper calls data that has another name in the main one."""
Found = Mapping[tuple[str, int], Mapping[str, float]]
"""The columns by target and seed."""


@dataclass(frozen=True, kw_only=True)
class Alignment(Ablation):
    """Similarity of the selected slots, and energy distance on MESSI's."""

    title: ClassVar[str] = "Routing-aware alignment controls"
    claim: ClassVar[str] = (
        "MESSI selects other slots than both controls (r = -0.20, J = 0.04 on PACS) and has a smaller discrepancy on "
        "them (0.096 where the controls have 0.235)."
    )
    cost: ClassVar[str] = (
        "162 runs of 5,000 to 15,000 steps, 36 of 5,000 on PACS, where 1,000 steps of MESSI-S-OT take 9.4 s on an H200"
    )

    data: tuple[DataName, ...] = tuple(BENCHMARKS)
    """The paper's data sets, or some of them; the small scale has data of its own."""
    share: Annotated[float, Bounds(above=0, maximum=1)] = 0.2
    """Share of the slots, those with the largest responsibilities, that counts as selected."""

    def runs(self) -> list[Planned]:
        """Return a run for every data set, seed, target and method."""
        return [run for benchmark in self._benchmarks for run in self.planned(METHODS, benchmark)]

    def sections(self, results: Results) -> list[Section]:
        """Return the table of the appendix, and for PACS that of the main text."""
        seen = measured(results, SLOTS)
        found = {benchmark.title: self._compared(seen, benchmark) for benchmark in self._benchmarks}
        rows = tuple(self._row(seen, benchmark, found[benchmark.title]) for benchmark in self._benchmarks)
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
        return [whole, *(self._short(seen, benchmark, found[benchmark.title]) for benchmark in short)]

    @property
    def _benchmarks(self) -> tuple[Benchmark, ...]:
        names: tuple[DataName, ...] = ("pacs",) if self.small else self.data
        return tuple(self.benchmark(name) for name in dict.fromkeys(names))

    def _compared(self, seen: Measured[Seen], benchmark: Benchmark) -> Found:
        """Compare the three models of every target and seed that has them all."""
        found = {}
        for target in benchmark.targets:
            for seed in self.all_seeds():
                runs = [_run(seen, method, benchmark.title, target, seed) for method in METHODS]
                if all(run.state == "done" for run in runs):
                    everywhere, at_random, messi = (seen.found[run.path] for run in runs)
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
            "Responsibilities of each model's own router on the held-out part of the source domains, mean over the "
            f"targets: their correlation r, and the overlap J of the {self.share:.0%} of the slots with the largest "
            "(G: Global-MoE, R: Random-Subset-MoE, M: MESSI); Delta is the mean energy distance between the domains "
            "in the experts' outputs on the slots that MESSI selects, of the outputs as they are and at unit length "
            f"(the paper says neither, nor the share), of at most {PER_DOMAIN:,} examples of a domain and {PER_CELL} "
            "of a class in it"
        )


def _run(results: Results, method: str, data: str, target: str, seed: int) -> Outcome:
    (run,) = results.where(method=method, data=data, target=target, seed=seed)
    return run


def _average(found: Found, column: str, targets: Sequence[str]) -> Summary | None:
    """Average over targets seed by seed, then over the seeds that have all targets."""
    scores = {key: numbers[column] for key, numbers in found.items()}
    return target_average(whole_seeds(scores, targets), targets)
