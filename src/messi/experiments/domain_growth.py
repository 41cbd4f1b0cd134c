"""Domain growth on Rotated-Colored MNIST: more and more source domains within a fixed budget of examples.

Claim: strong global alignment loses accuracy as domains are added; MESSI, which aligns only the
pairs of domains that its router selects, loses little.
Command: messi reproduce domain_growth --digits FOLDER (the four files of MNIST)
Cost: 192 runs of 600 steps; 4.3 minutes on an H200 with --jobs 6.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.coral import CORAL
from messi.algorithms.erm import ERM
from messi.experiments.common.growth import GrowthExperiment
from messi.experiments.common.methods import ERM_MOE, MESSI_OT
from messi.experiments.common.paper_numbers import DOMAIN_GROWTH, DOMAIN_GROWTH_SUMMARY
from messi.reports.charts import Chart, Series, explained_caption, line_figure
from messi.reports.plan_page import Figure, Section
from messi.reports.statistics import growth, whole_seeds
from messi.reports.table import Cell, Column, Published, Row, Table
from messi.studies.common.results import Results
from messi.sweeps.plan import PlannedRun

GAMMAS = (1, 10, 100, 250, 500)
METHODS: dict[str, AlgorithmConfig] = {
    "ERM": ERM.Config(),
    **{f"CORAL (gamma={gamma})": CORAL.Config(gamma=gamma) for gamma in GAMMAS},
    "ERM-MoE": ERM_MOE,
    "MESSI": MESSI_OT,
}
SMALL_METHODS = ("ERM", "CORAL (gamma=1)", "CORAL (gamma=500)", "MESSI")
DOMAINS, SMALL_DOMAINS = (3, 5, 7, 9, 11, 13, 15, 17), (3, 9, 17)
COLUMNS = (
    Column("Peak", digits=2),
    Column("Acc(K_max)", digits=2),
    Column("Drop", "down", digits=2),
    Column("RelDrop", "down", digits=2),
    Column("Avg", digits=2),
)


@dataclass(frozen=True, kw_only=True)
class DomainGrowth(GrowthExperiment):
    """Accuracy on an unseen environment against the number of source environments."""

    title: ClassVar[str] = "Fixed-budget domain growth on Rotated-Colored MNIST"
    claim: ClassVar[str] = (
        "With a higher CORAL weight, accuracy is lower and drops faster as domains are added; MESSI reaches the "
        "highest peak and the smallest drop."
    )
    compared_with: ClassVar[str] = "ERM"
    cost: ClassVar[str] = "192 runs of 600 steps; 4.3 minutes on an H200 with --jobs 6"
    reduced: ClassVar[str] = (
        "5,000 embedded digits instead of 70,000, 3 of 8 numbers of domains, 4 of 8 methods, a smaller network, "
        "150 steps with 16 images per domain, one seed"
    )

    def runs(self) -> list[PlannedRun]:
        """Return a run for every method, number of domains and seed."""
        return [
            PlannedRun({"method": method, "K": number, "seed": seed}, self.config(METHODS[method], number, seed))
            for seed in self.all_seeds()
            for number in self._domains
            for method in self._methods
        ]

    def report(self, results: Results) -> list[Section]:
        """Return both tables, the differences to ERM and, once a run is finished, the figure of the introduction."""
        charts = [chart for chart in self._charts(results) if chart.drawable]
        caption = explained_caption("Accuracy as source domains are added", charts)
        figures = [Figure("domain_growth", caption, line_figure(charts))] if charts else []
        return [self._summary(results), self._full(results), self.differences(results), *figures]

    @property
    def _methods(self) -> tuple[str, ...]:
        return SMALL_METHODS if self.small else tuple(METHODS)

    @property
    def _domains(self) -> tuple[int, ...]:
        return SMALL_DOMAINS if self.small else DOMAINS

    def _full(self, results: Results) -> Table:
        rows = tuple(
            Row((method,), tuple(self._cell(results, method, number) for number in self._domains), method == "MESSI")
            for method in self._methods
        )
        columns = tuple(Column(f"K = {number}", digits=2) for number in self._domains)
        title = "Target accuracy by number of source domains"
        return self.table(results, name="domain_growth_full", title=title, head="Method", columns=columns, rows=rows)

    def _summary(self, results: Results) -> Table:
        rows = tuple(Row((m,), self._growth_cells(results, m), m == "MESSI") for m in self._methods)
        return self.table(
            results,
            name="domain_growth",
            title="Fixed-budget domain growth",
            explanation="K* is the number of domains at the peak of the mean curve over complete seeds; Peak, Drop and "
            "RelDrop (in percent) are means over seeds of the values at that K*",
            head="Method",
            columns=COLUMNS,
            rows=rows,
        )

    def _cell(self, results: Results, method: str, number: int) -> Cell:
        paper = None if self.small else DOMAIN_GROWTH.get(method, {}).get(str(number))
        return results.cell(paper, method=method, K=number)

    def _growth_cells(self, results: Results, method: str) -> tuple[Cell, ...]:
        """Summarise the curves of the complete seeds."""
        scores = whole_seeds(results.scores("K", method=method), list(map(str, self._domains)))
        seeds = sorted({seed for _, seed in scores})
        found = growth([{number: scores[str(number), seed] for number in self._domains} for seed in seeds])
        values = (found.peak, found.last, found.drop, found.relative_drop.in_percent(), found.average) if found else ()
        published: dict[str, Published] = {} if self.small else DOMAIN_GROWTH_SUMMARY.get(method, {})
        state = results.state(method=method)
        return tuple(
            replace(state, ours=value, paper=published.get(column.name))
            for value, column in zip(values or [None] * len(COLUMNS), COLUMNS, strict=True)
        )

    def _charts(self, results: Results) -> list[Chart]:
        aligned = tuple(method for method in self._methods if method.startswith("CORAL"))
        others = tuple(method for method in self._methods if method not in aligned)
        return [
            Chart(title=title, x="{} source domains", series=tuple(self._series(results, m) for m in methods))
            for title, methods in (("Global alignment: target accuracy, %", aligned), ("Others", others))
        ]

    def _series(self, results: Results, method: str) -> Series:
        found = {number: results.summary(method=method, K=number) for number in self._domains}
        points = {float(number): value for number, value in found.items() if value}
        published = {} if self.small else DOMAIN_GROWTH.get(method, {})
        return Series(method, points, paper={float(number): value.mean for number, value in published.items()})
