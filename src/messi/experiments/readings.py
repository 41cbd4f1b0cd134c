"""Readings of the paper's open points, compared on Rotated-Colored MNIST.

Claim: none of the paper's. It leaves open the scale of epsilon, the number of Sinkhorn iterations, sum or mean over
slots, and the form of the diversity term. Defaults are chosen by accuracy on source validation data, not on the target.
Command: messi reproduce readings --digits FOLDER (the four files of MNIST)
Cost: 180 runs of 600 steps; 5.6 minutes on an H200 with --jobs 6.
"""

from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms.messi import MESSI
from messi.core.config import OPEN
from messi.engine.config import RunConfig
from messi.experiments.common.growth import GrowthExperiment
from messi.experiments.common.methods import (
    READINGS,
    READINGS_BASELINE,
    READINGS_EXPLANATION,
    READINGS_TITLE,
    SMALL_READINGS,
    learning_rate_name,
)
from messi.reports.plan_page import Section
from messi.reports.table import Column, Row
from messi.studies.common.results import Results, source_accuracy, target_accuracy
from messi.sweeps.plan import PlannedRun

LEARNING_RATES = {learning_rate_name(rate): rate for rate in (3e-4, 3e-3)}
"""In addition to the protocol's 1e-3."""
DOMAINS, SMALL_DOMAINS = (7, 9, 17), (9,)


@dataclass(frozen=True, kw_only=True)
class Readings(GrowthExperiment):
    """MESSI with one option changed at a time."""

    title: ClassVar[str] = "Readings of the paper's open points on Rotated-Colored MNIST"
    claim: ClassVar[str] = "none; it leaves these points open."
    compared_with: ClassVar[str] = READINGS_BASELINE
    cost: ClassVar[str] = "180 runs of 600 steps; 5.6 minutes on an H200 with --jobs 6"
    reduced: ClassVar[str] = (
        "5,000 embedded digits instead of 70,000, 5 of 20 readings, one of 3 numbers of domains, a smaller network, "
        "150 steps with 16 images per domain, one seed"
    )

    def runs(self) -> list[PlannedRun]:
        """Return a run for every reading, number of domains and seed."""
        return [
            PlannedRun({"method": reading, "K": number, "seed": seed}, self._read(reading, number, seed))
            for seed in self.all_seeds()
            for number in self._domains
            for reading in self._readings
        ]

    def report(self, results: Results) -> list[Section]:
        """Return validation accuracy, by which a reading may be chosen, target accuracy, and differences."""
        measures = {"validation": source_accuracy, "target": target_accuracy}
        places = [(number, name) for number in self._domains for name in measures]
        rows = tuple(
            Row((reading,), tuple(results.cell(value=measures[m], method=reading, K=number) for number, m in places))
            for reading in self._readings
        )
        columns = tuple(Column(f"{name}, K = {number}", digits=2) for number, name in places)
        table = self.table(
            results,
            name="readings",
            title=READINGS_TITLE,
            explanation=READINGS_EXPLANATION,
            head="Reading",
            columns=columns,
            rows=rows,
        )
        return [table, self.differences(results, on="validation data")]

    @property
    def _readings(self) -> tuple[str, ...]:
        return SMALL_READINGS if self.small else (*READINGS, *LEARNING_RATES)

    @property
    def _domains(self) -> tuple[int, ...]:
        return SMALL_DOMAINS if self.small else DOMAINS

    def _read(self, reading: str, number: int, seed: int) -> RunConfig:
        algorithm = READINGS.get(reading, MESSI.Config())
        return self.config(algorithm, number, seed, learning_rate=LEARNING_RATES.get(reading, OPEN))
