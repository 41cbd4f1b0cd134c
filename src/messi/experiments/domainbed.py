"""Accuracy on DomainBed's data sets, every domain held out in turn: the main table and one table per data set.

Claim: MESSI reaches the highest average accuracy over PACS, OfficeHome, TerraIncognita and DomainNet.
Command: messi reproduce domainbed --data pacs --rows ERM CORAL MESSI-Ti-OT --weights FOLDER
Cost: 54 runs of 5,000 to 15,000 steps per row on all data; 12 runs of 5,000 steps per row on PACS (on an H200,
4 minutes with DeiT-Ti/16 and --jobs 3, 14 minutes with ResNet-50 and --jobs 2).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from messi.core.config import Bounds
from messi.core.errors import MessiError, unknown_name
from messi.engine.config import RunConfig
from messi.engine.protocols import ProtocolName
from messi.experiments.common.base import Experiment
from messi.experiments.common.benchmarks import BENCHMARKS, STAND_IN, Benchmark, DataName
from messi.experiments.common.methods import ROWS, backbone_title, distinct_rows, paper_backbone, pretrained
from messi.experiments.common.paper_numbers import MAIN_EXTENDED
from messi.reports.plan_page import Section
from messi.reports.statistics import Summary, target_average, whole_seeds, worst_target
from messi.reports.table import Cell, Column, Provenance, Published, Row, Table
from messi.studies.common.results import Results
from messi.studies.common.tables import differences, learned
from messi.sweeps.plan import PlannedRun

SMALL_STEPS = 150
SMALL_ROWS = ("ERM", "CORAL", "ERM-MoE", "MESSI-Ti-OT")
AVERAGE = "Avg."
_UNPUBLISHED: Mapping[str, Published] = {}


@dataclass(frozen=True, kw_only=True)
class DomainBed(Experiment):
    """Methods, data sets, targets and seeds."""

    title: ClassVar[str] = "Out-of-domain accuracy on DomainBed's data sets"
    claim: ClassVar[str] = (
        "MESSI-S-OT reaches the highest accuracy on PACS, OfficeHome and DomainNet and the highest average; "
        "MESSI-Ti-OT, with less than a third of the parameters, equals conventional methods on ResNet-50."
    )
    cost: ClassVar[str] = (
        "54 runs of 5,000 to 15,000 steps per row on all data; 12 runs of 5,000 steps per row on PACS, which take 4 "
        "minutes on an H200 with DeiT-Ti/16 and --jobs 3, and 14 minutes with ResNet-50 and --jobs 2"
    )

    data: tuple[DataName, ...] = tuple(BENCHMARKS)
    """Some of the paper's data sets; the small scale uses other data."""
    rows: tuple[str, ...] = ()
    """Rows of the table, such as ERM CORAL GMoE MESSI-S-OT; by default all."""
    baseline: str | None = None
    """The row that others are compared with, pair by pair; by default the first, ERM."""
    backbone: str | None = None
    """Run every row on this timm model instead of the paper's backbone."""
    weights: str | None = None
    """Folder with pretrained weights, BACKBONE.safetensors or BACKBONE.pth; by default they are downloaded."""
    path: str | None = None
    """Folder that contains the folders of the data sets; by default $MESSI_HOME/data."""
    protocol: ProtocolName = "messi"
    """The protocol of all rows."""
    steps: Annotated[int, Bounds(minimum=1)] | None = None
    """Training steps; by default the protocol's."""

    def __post_init__(self) -> None:
        """Check the names of rows."""
        super().__post_init__()
        for name in self.rows:
            if name not in ROWS:
                raise unknown_name("row", name, ROWS)
        if self.baseline and self.baseline not in self._rows:
            raise MessiError(f"baseline must be one of the rows {', '.join(self._rows)}, but is '{self.baseline}'.")

    @property
    def reduced(self) -> str:
        """What the small scale reduces, given the options it respects."""
        count, steps = len(set(self.rows or SMALL_ROWS)), self.steps or SMALL_STEPS
        methods = f"{count} method{'s' if count > 1 else ''}"
        network = backbone_title(self.backbone) if self.backbone else "a small network without pretrained weights"
        return (
            "5,000 embedded digits, rotated by six angles, instead of the paper's data, "
            f"{methods}, {network}, {steps:,} steps with 16 images per domain, one seed"
        )

    @property
    def compared_with(self) -> str:
        """The baseline, or the first row."""
        return self.baseline or self._rows[0]

    def runs(self) -> list[PlannedRun]:
        """Return a run for every data set, seed, target and row."""
        return [
            PlannedRun(
                {"method": row, "data": benchmark.title, "target": target, "seed": seed},
                self._config(row, benchmark, target, seed),
            )
            for benchmark in self._benchmarks
            for seed in self.all_seeds()
            for target in benchmark.targets
            for row in self._rows
        ]

    def report(self, results: Results) -> list[Section]:
        """Return the main table, one table per data set, the differences to the baseline and what models learned."""
        tables = _Tables(
            results=results,
            rows={name: self._backbone(name) for name in self._rows},
            benchmarks=self._benchmarks,
            baseline=self.compared_with,
            remarks=self._remarks(),
        )
        compared = [tables.differences()] if len(self._rows) > 1 else []
        return [tables.main(), *map(tables.by_target, self._benchmarks), *compared, tables.learned()]

    @property
    def _rows(self) -> tuple[str, ...]:
        if self.rows:
            return tuple(dict.fromkeys(self.rows))
        if self.small:
            return SMALL_ROWS
        return distinct_rows() if self.backbone else tuple(ROWS)

    @property
    def _benchmarks(self) -> tuple[Benchmark, ...]:
        return (STAND_IN,) if self.small else tuple(BENCHMARKS[name] for name in dict.fromkeys(self.data))

    def _backbone(self, row: str) -> str:
        return self.backbone or ("tiny_cnn" if self.small else ROWS[row].backbone)

    def _config(self, row: str, benchmark: Benchmark, target: str, seed: int) -> RunConfig:
        training = ROWS[row].training
        if self.small:
            steps = self.steps or SMALL_STEPS
            training = dataclasses.replace(training, steps=steps, batch_per_domain=16, evaluate_every=50)
        elif self.steps:
            training = dataclasses.replace(training, steps=self.steps)
        return RunConfig(
            data=benchmark.config(self.path),
            target=(target,),
            algorithm=ROWS[row].algorithm,
            encoder=pretrained(self._backbone(row), self.weights),
            protocol=self.protocol,
            training=training,
            seed=seed,
        )

    def _remarks(self) -> str:
        protocol = f"{self.protocol} for all rows"
        if self.small:
            return f"{protocol}; reduced: {self.reduced}"
        remarks = [protocol, "the paper quotes most ResNet-50 rows, obtained with DomainBed's protocol"]
        if self.backbone:
            remarks.append(f"all rows on {backbone_title(self.backbone)}, regardless of the paper's backbone")
        if self.steps:
            remarks.append(f"steps set to {self.steps:,}")
        return "; ".join(remarks)


@dataclass(frozen=True, kw_only=True)
class _Tables:
    """Builds the tables from the results."""

    results: Results
    rows: Mapping[str, str]
    """The backbone of every row."""
    benchmarks: Sequence[Benchmark]
    baseline: str
    remarks: str
    """About the protocol."""

    def main(self) -> Table:
        """Return the accuracy on every data set, averaged over its targets, and the average over several data sets."""
        several = len(self.benchmarks) > 1
        rows = tuple(self._row(name, self._averages(name) + [self._grand(name)] * several) for name in self.rows)
        names = [benchmark.title for benchmark in self.benchmarks] + [AVERAGE] * several
        return self._table("domainbed", self.benchmarks, "Out-of-domain accuracy", tuple(map(Column, names)), rows)

    def by_target(self, benchmark: Benchmark) -> Table:
        """Return the accuracy on every target of a data set, their mean and the worst."""
        rows = tuple(self._row(name, self._targets(name, benchmark)) for name in self.rows)
        columns = tuple(Column(name) for name in (*benchmark.targets.values(), AVERAGE, "Worst"))
        heading = f"Out-of-domain accuracy on {benchmark.title} by target"
        worst = "The worst target is the one with the lowest mean"
        return self._table(f"domainbed_{benchmark.name}", [benchmark], heading, columns, rows, worst)

    def differences(self) -> Table:
        """Return the differences of every row to the baseline on every data set."""
        provenance = self._provenance(self.benchmarks)
        return differences(self.results, name="domainbed_differences", baseline=self.baseline, provenance=provenance)

    def learned(self) -> Table:
        """Return what the models of every row have learned on every data set."""
        return learned(self.results, name="domainbed_learned", provenance=self._provenance(self.benchmarks))

    def _averages(self, row: str) -> list[Cell]:
        paper = self._main_paper(row)
        return [self.results.cell(paper.get(b.title), method=row, data=b.title) for b in self.benchmarks]

    def _grand(self, row: str) -> Cell:
        """Average over data sets seed by seed, as over targets."""
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
        """Return whether a row ran on the paper's backbone."""
        return paper_backbone(self.rows[row]) == ROWS[row].backbone

    def _main_paper(self, row: str) -> Mapping[str, Published]:
        backbone = backbone_title(paper_backbone(self.rows[row]))
        return MAIN_EXTENDED.get(("ERM" if row == "ERM-S" else row, backbone), _UNPUBLISHED)

    def _row(self, name: str, cells: list[Cell]) -> Row:
        return Row((name, backbone_title(self.rows[name])), tuple(cells), name.startswith("MESSI"))

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
