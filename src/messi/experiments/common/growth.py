"""The base of the experiments on Rotated-Colored MNIST: K source domains within a fixed budget of examples."""

from dataclasses import dataclass, replace

from messi.algorithms.common.base import AlgorithmConfig
from messi.core.config import OPEN
from messi.data.datasets.common.digits import EMBEDDED
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import RunConfig, TrainingConfig
from messi.experiments.common.base import Experiment
from messi.models.encoder import EncoderConfig
from messi.reports.table import Column, Provenance, Row, Table
from messi.studies.common.results import Results
from messi.studies.common.tables import On, differences

BUDGET = 35_000
"""Examples of all source domains together in the paper's domain-growth protocol (docs/method.md)."""


@dataclass(frozen=True, kw_only=True)
class GrowthExperiment(Experiment):
    """Runs with K source domains and the same target."""

    digits: str = "download"
    """MNIST: 'download', an .npz file, or a folder with its four files; the small scale uses embedded digits."""
    steps: int = 600
    """Training steps; the paper does not state them. The small scale uses 150."""

    def config(self, algorithm: AlgorithmConfig, number: int, seed: int, *, learning_rate: float = OPEN) -> RunConfig:
        """Return the run of a method with a given number of source domains."""
        digits, backbone = (EMBEDDED, "tiny_cnn") if self.small else (self.digits, "small_cnn")
        data = RotatedColoredMNIST(digits=digits, num_sources=number, budget=None if self.small else BUDGET)
        steps, size = (150, 16) if self.small else (self.steps, 64)
        training = TrainingConfig(steps=steps, batch_per_domain=size, evaluate_every=min(100, steps), log_every=20)
        return RunConfig(
            data=data,
            target=(data.test_domain,),
            algorithm=algorithm,
            encoder=EncoderConfig(backbone=backbone),
            training=replace(training, learning_rate=learning_rate),
            seed=seed,
        )

    def table(
        self,
        results: Results,
        *,
        name: str,
        title: str,
        explanation: str = "",
        head: str,
        columns: tuple[Column, ...],
        rows: tuple[Row, ...],
    ) -> Table:
        """Return a table that states how its numbers were obtained."""
        return Table(
            name=name,
            title=title,
            explanation=explanation,
            provenance=self._provenance(results),
            heads=(head,),
            columns=columns,
            groups=(rows,),
        )

    def differences(self, results: Results, on: On = "the target") -> Table:
        """Return the differences of every method to the one that all are compared with."""
        name, provenance = f"{self.name}_differences", self._provenance(results)
        return differences(results, name=name, baseline=self.compared_with, provenance=provenance, within="K", on=on)

    def _provenance(self, results: Results) -> Provenance:
        digits = "5,000 embedded digits" if self.small else f"MNIST, B = {BUDGET:,}"
        data = f"Rotated-Colored MNIST ({digits}), E = 18, nested order, target rot0-p0.5"
        return results.provenance(data=data, reduced=self.reduced if self.small else "")
