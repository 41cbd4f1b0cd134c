"""The base of all ablations: variants of a method on one of the paper's data sets, with domains held out in turn."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from messi.algorithms.common.base import AlgorithmConfig
from messi.core.config import OPEN, Bounds
from messi.engine.config import RunConfig, TrainingConfig
from messi.experiments.common.base import Experiment
from messi.experiments.common.benchmarks import BENCHMARKS, STAND_IN, Benchmark, DataName
from messi.experiments.common.methods import DEIT_S, backbone_title, pretrained
from messi.models.encoder import EncoderConfig
from messi.reports.table import Provenance, Published, Table
from messi.studies.common.results import Results
from messi.studies.common.tables import On, differences, learned
from messi.sweeps.plan import PlannedRun

SMALL = dataclasses.replace(STAND_IN, targets={angle: STAND_IN.targets[angle] for angle in ("0", "75")})
SMALL_BACKBONE = "tiny_cnn"
SMALL_TRAINING = TrainingConfig(steps=300, batch_per_domain=16, evaluate_every=100)


@dataclass(frozen=True, kw_only=True)
class Ablation(Experiment):
    """Runs that differ only in the method."""

    reduced: ClassVar[str] = (
        "5,000 embedded digits, rotated by six angles, instead of the paper's data, two of them held out in turn, a "
        "small network without pretrained weights, 300 steps with 16 images per domain, one seed"
    )

    path: str | None = None
    """Folder that contains the folders of the data sets; by default $MESSI_HOME/data."""
    weights: str | None = None
    """Folder with pretrained weights, BACKBONE.safetensors or BACKBONE.pth; by default they are downloaded."""
    backbone: str = DEIT_S
    """A timm model; by default the paper's DeiT-S/16. The small scale uses its own."""
    steps: Annotated[int, Bounds(minimum=1)] | None = None
    """Training steps; by default the protocol's. The small scale uses its own."""

    def benchmark(self, name: DataName) -> Benchmark:
        """Return one of the paper's data sets, or its replacement at the small scale."""
        return SMALL if self.small else BENCHMARKS[name]

    def planned(self, methods: Mapping[str, AlgorithmConfig], benchmark: Benchmark) -> list[PlannedRun]:
        """Return a run for every seed, target and method."""
        return [
            PlannedRun(
                {"method": method, "data": benchmark.title, "target": target, "seed": seed},
                self._config(config, benchmark, target, seed),
            )
            for seed in self.all_seeds()
            for target in benchmark.targets
            for method, config in methods.items()
        ]

    def paper(self, numbers: Mapping[str, Published]) -> Mapping[str, Published]:
        """Return the paper's numbers of a row; none if they belong to another data set or backbone."""
        return {} if self.small or self.backbone != DEIT_S else numbers

    def provenance(self, results: Results) -> Provenance:
        """Return how the numbers were obtained."""
        stated = results.provenance(data=self._data(results), reduced=self.reduced if self.small else "")
        steps = dict.fromkeys(outcome.run.config.resolved().training.steps for outcome in results.outcomes)
        if len(steps) == 1:
            return stated
        counts = ", ".join(f"{number:,}" for number in steps)
        return dataclasses.replace(stated, protocol=f"messi, {counts} steps")

    def differences(self, results: Results, on: On = "the target") -> Table:
        """Return the differences of every variant to the one that all are compared with."""
        name, provenance = f"{self.name}_differences", self.provenance(results)
        return differences(results, name=name, baseline=self.compared_with, provenance=provenance, on=on)

    def learned(self, results: Results) -> Table:
        """Return what the models of every variant have learned."""
        return learned(results, name=f"{self.name}_learned", provenance=self.provenance(results))

    def _data(self, results: Results) -> str:
        titles = _different(results, "data")
        targets = f"held out: {', '.join(_different(results, 'target'))}" if len(titles) == 1 else "all targets"
        backbone = backbone_title(SMALL_BACKBONE if self.small else self.backbone)
        return f"{', '.join(titles)}, {targets}; backbone {backbone}"

    def _config(self, method: AlgorithmConfig, benchmark: Benchmark, target: str, seed: int) -> RunConfig:
        small = EncoderConfig(backbone=SMALL_BACKBONE)
        return RunConfig(
            data=benchmark.config(self.path),
            target=(target,),
            algorithm=method,
            encoder=small if self.small else pretrained(self.backbone, self.weights),
            training=SMALL_TRAINING if self.small else TrainingConfig(steps=self.steps or OPEN),
            seed=seed,
        )


def _different(results: Results, label: str) -> Sequence[str]:
    return list(dict.fromkeys(str(outcome.labels[label]) for outcome in results.outcomes))
