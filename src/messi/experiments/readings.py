"""How the paper's open points may be read, and what each reading does on Rotated-Colored MNIST.

Claim: none of the paper's. It leaves open the scale of epsilon, the number of Sinkhorn rounds, sum or mean over slots
and the form of the diversity term; a default is chosen by the accuracy on source validation data, not by the target's.
Command: messi reproduce readings --digits FOLDER (the four files of MNIST)
Cost: 180 runs of 600 steps; 5.6 minutes on an H200 with --jobs 6.
"""

from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms.messi import MESSI
from messi.core.config import OPEN
from messi.engine.config import RunConfig
from messi.experiments.common.base import Section
from messi.experiments.common.growth import Growing
from messi.experiments.common.readings import BASELINE, EXPLANATION, READINGS, SMALL_READINGS, TITLE, at
from messi.experiments.common.results import Results, source_accuracy, target_accuracy
from messi.reports.paper_tables import Column, Row
from messi.sweeps.plan import Planned

LEARNING_RATES = {at(rate): rate for rate in (3e-4, 3e-3)}
"""Besides the protocol's 1e-3."""
DOMAINS, SMALL_DOMAINS = (7, 9, 17), (9,)


@dataclass(frozen=True, kw_only=True)
class Readings(Growing):
    """MESSI with one option changed at a time."""

    title: ClassVar[str] = "Readings of the paper's open points on Rotated-Colored MNIST"
    claim: ClassVar[str] = "none; it leaves these points open."
    compared_with: ClassVar[str] = BASELINE
    cost: ClassVar[str] = "180 runs of 600 steps; 5.6 minutes on an H200 with --jobs 6"
    reduced: ClassVar[str] = (
        "5,000 embedded digits instead of 70,000, 5 of 20 readings, one of 3 numbers of domains, a smaller network, "
        "150 steps with 16 images per domain, one seed"
    )

    def runs(self) -> list[Planned]:
        """Return a run for every reading, number of domains and seed."""
        return [
            Planned({"method": reading, "K": number, "seed": seed}, self._read(reading, number, seed))
            for seed in self.all_seeds()
            for number in self._domains
            for reading in self._readings
        ]

    def sections(self, results: Results) -> list[Section]:
        """Return what validation data say, by which a reading may be chosen, the target beside it, and differences."""
        measures = {"validation": source_accuracy, "target": target_accuracy}
        places = [(number, name) for number in self._domains for name in measures]
        rows = tuple(
            Row((reading,), tuple(results.cell(value=measures[m], method=reading, K=number) for number, m in places))
            for reading in self._readings
        )
        columns = tuple(Column(f"{name}, K = {number}", digits=2) for number, name in places)
        table = self.table(
            results, name="readings", title=TITLE, explanation=EXPLANATION, head="Reading", columns=columns, rows=rows
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
