"""How the paper's open points may be read, and what each reading does on Rotated-Colored MNIST.

Claim: none of the paper's. It leaves open the scale of epsilon, the number of Sinkhorn rounds, sum or mean over slots
and the form of the diversity term; a default is chosen by the accuracy on source validation data, not by the target's.
Command: messi reproduce readings --digits FOLDER (the four files of MNIST)
"""

from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms._base import AlgorithmConfig
from messi.algorithms.erm import Erm
from messi.algorithms.messi import Messi
from messi.engine.config import RunConfig
from messi.experiments._base import Section
from messi.experiments._growth import Growing
from messi.experiments._methods import ERM_MOE, MESSI_MMD
from messi.experiments._results import Results, source_accuracy, target_accuracy
from messi.reports.paper_tables import Column, Row
from messi.sweeps.plan import Planned

READINGS: dict[str, AlgorithmConfig] = {
    "ERM": Erm.Config(),
    "ERM-MoE": ERM_MOE,
    "MESSI, defaults": Messi.Config(),
    "sum over slots": Messi.Config(reduction="sum"),
    "epsilon 0.01 of the mean cost": Messi.Config(epsilon=0.01),
    "epsilon 1 of the mean cost": Messi.Config(epsilon=1.0),
    "epsilon 0.1, absolute": Messi.Config(epsilon_scale="absolute"),
    "epsilon 1, absolute": Messi.Config(epsilon=1.0, epsilon_scale="absolute"),
    "10 rounds": Messi.Config(iterations=10),
    "200 rounds": Messi.Config(iterations=200),
    "diversity by the equation": Messi.Config(diversity="frobenius"),
    "MMD": MESSI_MMD,
    "ssi weight 0.001": Messi.Config(ssi_weight=0.001),
    "ssi weight 0.1": Messi.Config(ssi_weight=0.1),
    "ssi weight 1": Messi.Config(ssi_weight=1.0),
    "ssi weight 10": Messi.Config(ssi_weight=10.0),
    "balance weight 0.2": Messi.Config(balance_weight=0.2),
    "no regularisers": Messi.Config(sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0),
}
LEARNING_RATES = (3e-4, 3e-3)
"""Besides the protocol's 1e-3."""
DOMAINS, SMALL_DOMAINS = (7, 9, 17), (9,)
SMALL_READINGS = ("ERM", "MESSI, defaults", "sum over slots", "diversity by the equation", "MMD")


@dataclass(frozen=True, kw_only=True)
class Readings(Growing):
    """MESSI with one option changed at a time."""

    title: ClassVar[str] = "Readings of the paper's open points on Rotated-Colored MNIST"
    claim: ClassVar[str] = "none; it leaves these points open."
    cost: ClassVar[str] = "180 runs of 600 steps"
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
        """Return one table: what validation data say, by which a reading may be chosen, and the target beside it."""
        measures = {"validation": source_accuracy, "target": target_accuracy}
        places = [(number, name) for number in self._domains for name in measures]
        rows = tuple(
            Row((reading,), tuple(results.cell(value=measures[m], method=reading, K=number) for number, m in places))
            for reading in self._readings
        )
        columns = tuple(Column(f"{name}, K = {number}", digits=2) for number, name in places)
        title = "MESSI with one option changed at a time; a default may be chosen by validation alone"
        return [self.table(results, name="readings", title=title, head="Reading", columns=columns, rows=rows)]

    @property
    def _readings(self) -> tuple[str, ...]:
        return SMALL_READINGS if self.small else (*READINGS, *(_at(rate) for rate in LEARNING_RATES))

    @property
    def _domains(self) -> tuple[int, ...]:
        return SMALL_DOMAINS if self.small else DOMAINS

    def _read(self, reading: str, number: int, seed: int) -> RunConfig:
        rates = {_at(rate): rate for rate in LEARNING_RATES}
        algorithm = READINGS.get(reading, Messi.Config())
        return self.config(algorithm, number, seed, learning_rate=rates.get(reading))


def _at(rate: float) -> str:
    return f"learning rate {rate:g}"
