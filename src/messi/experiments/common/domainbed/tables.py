"""The tables of the experiment on DomainBed's data, from its results."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from messi.experiments.common.backbones import of_paper, title
from messi.experiments.common.diagnostics import learned
from messi.experiments.common.differences import differences
from messi.experiments.common.domainbed.data import BENCHMARKS, Benchmark
from messi.experiments.common.domainbed.rows import ROWS
from messi.experiments.common.results import Results
from messi.experiments.paper.domainbed import MAIN_EXTENDED
from messi.reports.paper_tables import Cell, Column, Provenance, Published, Row, Table
from messi.reports.statistics import Summary, target_average, whole_seeds, worst_target

AVERAGE = "Avg."
_UNPUBLISHED: Mapping[str, Published] = {}


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Makes them."""

    results: Results
    rows: Mapping[str, str]
    """The backbone that every row ran on."""
    benchmarks: Sequence[Benchmark]
    baseline: str
    remarks: str
    """What is to be said of the protocol."""

    def main(self) -> Table:
        """Return the accuracy on every data set, the mean over its targets, and of several the mean over them."""
        several = len(self.benchmarks) > 1
        rows = tuple(self._row(name, self._averages(name) + [self._grand(name)] * several) for name in self.rows)
        names = [benchmark.title for benchmark in self.benchmarks] + [AVERAGE] * several
        return self._table("domainbed", self.benchmarks, "Out-of-domain accuracy", tuple(map(Column, names)), rows)

    def by_target(self, benchmark: Benchmark) -> Table:
        """Return the accuracy on every target of a data set, their mean and the worst."""
        rows = tuple(self._row(name, self._targets(name, benchmark)) for name in self.rows)
        columns = tuple(Column(name) for name in (*benchmark.targets.values(), AVERAGE, "Worst"))
        heading = f"Out-of-domain accuracy on {benchmark.title} by target"
        worst = "The worst target is that with the lowest mean"
        return self._table(f"domainbed_{benchmark.name}", [benchmark], heading, columns, rows, worst)

    def differences(self) -> Table:
        """Return by how much every row exceeds the baseline on every data set."""
        provenance = self._provenance(self.benchmarks)
        return differences(self.results, name="domainbed_differences", baseline=self.baseline, provenance=provenance)

    def learned(self) -> Table:
        """Return what the models of every row have learned on every data set."""
        return learned(self.results, name="domainbed_learned", provenance=self._provenance(self.benchmarks))

    def _averages(self, row: str) -> list[Cell]:
        paper = self._main_paper(row)
        return [self.results.cell(paper.get(b.title), method=row, data=b.title) for b in self.benchmarks]

    def _grand(self, row: str) -> Cell:
        """Average over data sets seed by seed, as over targets before."""
        found: dict[tuple[str, int], Summary | None] = {
            (b.title, int(seed)): self.results.summary(method=row, data=b.title, seed=seed)
            for b in self.benchmarks
            for seed in {outcome.labels["seed"] for outcome in self.results.outcomes}
        }
        titles = [b.title for b in self.benchmarks]
        scores = whole_seeds({key: summary.mean for key, summary in found.items() if summary}, titles)
        paper = self._main_paper(row) if len(self.benchmarks) == len(BENCHMARKS) else _UNPUBLISHED
        average = target_average(scores, titles)
        return dataclasses.replace(self.results.state(method=row), ours=average, paper=paper.get(AVERAGE))

    def _targets(self, row: str, benchmark: Benchmark) -> list[Cell]:
        published = self._is_papers(row) and row in benchmark.paper
        paper = benchmark.paper[row] if published else _UNPUBLISHED
        average = self.results.cell(paper.get(AVERAGE), method=row, data=benchmark.title)
        targets = list(benchmark.targets)
        scores = whole_seeds(self.results.scores("target", method=row, data=benchmark.title), targets)
        worst = worst_target(scores, targets)
        return [
            *(
                self.results.cell(paper.get(name), method=row, data=benchmark.title, target=target)
                for target, name in benchmark.targets.items()
            ),
            average,
            dataclasses.replace(average, ours=worst.summary if worst else None, paper=None),
        ]

    def _is_papers(self, row: str) -> bool:
        """Tell whether a row ran on the backbone that the paper has it on."""
        return of_paper(self.rows[row]) == ROWS[row].backbone

    def _main_paper(self, row: str) -> Mapping[str, Published]:
        backbone = title(of_paper(self.rows[row]))
        return MAIN_EXTENDED.get(("ERM" if row == "ERM-S" else row, backbone), _UNPUBLISHED)

    def _row(self, name: str, cells: list[Cell]) -> Row:
        return Row((name, title(self.rows[name])), tuple(cells), _is_messi(name))

    def _table(
        self,
        name: str,
        benchmarks: Sequence[Benchmark],
        heading: str,
        columns: tuple[Column, ...],
        rows: tuple[Row, ...],
        explanation: str = "",
    ) -> Table:
        return Table(
            name=name,
            title=heading,
            explanation=explanation,
            provenance=self._provenance(benchmarks),
            heads=("Method", "Backbone"),
            columns=columns,
            groups=(rows,),
        )

    def _provenance(self, benchmarks: Sequence[Benchmark]) -> Provenance:
        outcomes = [o for b in benchmarks for o in self.results.where(data=b.title)]
        steps = dict.fromkeys(o.run.config.resolved().training.steps for o in outcomes)
        stated = Results(outcomes).provenance(data=", ".join(b.title for b in benchmarks))
        counts = ", ".join(f"{number:,}" for number in steps)
        return dataclasses.replace(stated, protocol=f"{self.remarks}; {counts} steps")


def _is_messi(row: str) -> bool:
    return row.startswith("MESSI")
