"""Readings of the paper's open points, compared on PACS.

Claim: none of the paper's. readings.py does the same on Rotated-Colored MNIST in a fraction of the time.
Command: messi reproduce readings_pacs --weights FOLDER
Cost: 240 runs of 5,000 steps; 80 of 2,000 with --seeds 1 --steps 2000 (12 minutes on an H200 with --jobs 3).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from messi.algorithms.messi import MESSI
from messi.core.config import OPEN
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.methods import (
    DEIT_TI,
    READINGS,
    READINGS_BASELINE,
    READINGS_EXPLANATION,
    READINGS_TITLE,
    SMALL_READINGS,
    learning_rate_name,
)
from messi.reports.plan_page import Section
from messi.reports.table import Column, Row, Table
from messi.studies.common.results import Results, source_accuracy
from messi.sweeps.plan import PlannedRun

LEARNING_RATES = {learning_rate_name(rate): rate for rate in (1e-5, 1e-4)}
"""In addition to the protocol's 3e-5."""


@dataclass(frozen=True, kw_only=True)
class ReadingsPACS(Ablation):
    """MESSI with one option changed at a time."""

    title: ClassVar[str] = "Readings of the paper's open points on PACS"
    claim: ClassVar[str] = "none; it leaves these points open."
    compared_with: ClassVar[str] = READINGS_BASELINE
    cost: ClassVar[str] = (
        "240 runs of 5,000 steps; 80 of 2,000 steps with --seeds 1 --steps 2000, which take 12 minutes on an H200 with "
        "--jobs 3"
    )
    reduced: ClassVar[str] = f"{Ablation.reduced}; 5 of 20 readings"

    backbone: str = DEIT_TI
    """A timm model; the small scale uses its own."""

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, target and reading."""
        readings = {name: READINGS.get(name, MESSI.Config()) for name in self._readings}
        return [_at_its_rate(run) for run in self.planned(readings, self.benchmark("pacs"))]

    def report(self, results: Results) -> list[Section]:
        """Return validation accuracy, by which a reading may be chosen, target accuracy, and differences."""
        targets = self.benchmark("pacs").targets
        columns = ("validation", *targets.values(), "Avg.")
        table = Table(
            name="readings_pacs",
            title=READINGS_TITLE,
            explanation=f"{READINGS_EXPLANATION}, the mean over source domains and targets",
            provenance=self.provenance(results),
            heads=("Reading",),
            columns=tuple(Column(name, digits=2) for name in columns),
            groups=(tuple(self._row(results, reading, list(targets)) for reading in self._readings),),
        )
        return [table, self.differences(results, on="validation data")]

    @property
    def _readings(self) -> tuple[str, ...]:
        return SMALL_READINGS if self.small else (*READINGS, *LEARNING_RATES)

    def _row(self, results: Results, reading: str, targets: list[str]) -> Row:
        validation = results.cell(value=source_accuracy, method=reading)
        by_target = [results.cell(method=reading, target=target) for target in targets]
        return Row((reading,), (validation, *by_target, results.cell(method=reading)))


def _at_its_rate(run: PlannedRun) -> PlannedRun:
    rate = LEARNING_RATES.get(str(run.labels["method"]), OPEN)
    return replace(run, config=replace(run.config, training=replace(run.config.training, learning_rate=rate)))
