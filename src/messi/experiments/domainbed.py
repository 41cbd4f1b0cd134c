"""Accuracy on DomainBed's data sets, every domain held out in turn: the main table and one table per data set.

Claim: MESSI has the highest average accuracy over PACS, OfficeHome, TerraIncognita and DomainNet.
Command: messi reproduce domainbed --data pacs --rows ERM CORAL MESSI-Ti-OT --weights FOLDER
Cost: 54 runs of 5,000 to 15,000 steps for a row on all data; 12 runs of 5,000 steps on PACS (on an H200 4 minutes
with DeiT-Ti/16 and --jobs 3, 14 with ResNet-50 and --jobs 2).
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

from messi.core.config import Bounds
from messi.core.errors import MessiError, unknown_name
from messi.engine.config import RunConfig
from messi.engine.protocols import ProtocolName
from messi.experiments.common.backbones import pretrained, title
from messi.experiments.common.base import Experiment, Section
from messi.experiments.common.domainbed.data import BENCHMARKS, STAND_IN, Benchmark, DataName
from messi.experiments.common.domainbed.rows import ROWS, same_method_once
from messi.experiments.common.domainbed.tables import Tables
from messi.experiments.common.results import Results
from messi.sweeps.plan import Planned

SMALL_STEPS = 150
SMALL_ROWS = ("ERM", "CORAL", "ERM-MoE", "MESSI-Ti-OT")


@dataclass(frozen=True, kw_only=True)
class Domainbed(Experiment):
    """Methods, data sets, targets and seeds."""

    title: ClassVar[str] = "Out-of-domain accuracy on DomainBed's data sets"
    claim: ClassVar[str] = (
        "MESSI-S-OT has the highest accuracy on PACS, OfficeHome and DomainNet and the highest average; MESSI-Ti-OT, "
        "with less than a third of the parameters, equals conventional methods on ResNet-50."
    )
    cost: ClassVar[str] = (
        "54 runs of 5,000 to 15,000 steps for every row on all data; 12 of 5,000 steps on PACS, which on an H200 take "
        "4 minutes with DeiT-Ti/16 and --jobs 3, and 14 with ResNet-50 and --jobs 2"
    )

    data: tuple[DataName, ...] = tuple(BENCHMARKS)
    """The paper's data sets, or some of them; the small scale has data of its own."""
    rows: tuple[str, ...] = ()
    """Rows of the table by name, such as ERM CORAL GMoE MESSI-S-OT; by default all."""
    baseline: str | None = None
    """The row that others are compared with, pair by pair; by default the first one, ERM."""
    backbone: str | None = None
    """Run every row on this timm model instead of the paper's backbone for it."""
    weights: str | None = None
    """A folder with pretrained weights, BACKBONE.safetensors or BACKBONE.pth, instead of a download."""
    path: str | None = None
    """The folder that holds the data sets' folders; by default they are looked for in $MESSI_HOME/data."""
    protocol: ProtocolName = "messi"
    """The protocol of all rows."""
    steps: Annotated[int, Bounds(minimum=1)] | None = None
    """Training steps instead of the protocol's."""

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
        """What the small scale does, with the options that it follows."""
        count, steps = len(set(self.rows or SMALL_ROWS)), self.steps or SMALL_STEPS
        methods = f"{count} method{'s' if count > 1 else ''}"
        network = title(self.backbone) if self.backbone else "a small network without pretrained weights"
        return (
            "5,000 embedded digits, rotated by six angles, instead of the paper's data, "
            f"{methods}, {network}, {steps:,} steps with 16 images per domain, one seed"
        )

    @property
    def compared_with(self) -> str:
        """The baseline, or the first row."""
        return self.baseline or self._rows[0]

    def runs(self) -> list[Planned]:
        """Return a run for every data set, seed, target and row."""
        return [
            Planned(
                {"method": row, "data": benchmark.title, "target": target, "seed": seed},
                self._config(row, benchmark, target, seed),
            )
            for benchmark in self._benchmarks
            for seed in self.all_seeds()
            for target in benchmark.targets
            for row in self._rows
        ]

    def sections(self, results: Results) -> list[Section]:
        """Return the main table, a table for every data set, the differences to the baseline and what was learned."""
        tables = Tables(
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
        return same_method_once() if self.backbone else tuple(ROWS)

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
            algorithm=ROWS[row].method,
            encoder=pretrained(self._backbone(row), self.weights),
            protocol=self.protocol,
            training=training,
            seed=seed,
        )

    def _remarks(self) -> str:
        protocol = f"{self.protocol} for all rows"
        if self.small:
            return f"{protocol}; reduced: {self.reduced}"
        remarks = [protocol, "the paper quotes most ResNet-50 rows, under DomainBed's"]
        if self.backbone:
            remarks.append(f"all rows on {title(self.backbone)}, whatever the paper's backbone is")
        if self.steps:
            remarks.append(f"steps set to {self.steps:,}")
        return "; ".join(remarks)
