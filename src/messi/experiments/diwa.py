"""DiWA on PACS: the average of runs that start from one linear probe and differ in seed and optimizer settings.

Claim: none of the paper's. With ResNet-50, Rame et al. (2022) report 89.0 for the average of 60 runs, and 85.5 for ERM.
Command: messi reproduce diwa --weights FOLDER
Cost: 480 runs of 5,000 steps, 24 linear probes of 500 steps and 48 averages.
With --scale small --jobs 1 it took 2 minutes of one CPU core.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch

from messi.algorithms.erm import ERM
from messi.core.config import Bounds
from messi.core.run_documents import AverageChoice, AveragedScores
from messi.core.seeding import generator
from messi.engine.config import RunConfig, TrainingConfig
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.methods import DEIT_TI, MESSI_OT
from messi.reports.plan_page import Section
from messi.reports.table import Column, Row, Table
from messi.studies.common.results import Results, Value, source_accuracy, target_accuracy
from messi.sweeps.plan import Planned, PlannedAverage, PlannedRun

METHODS = {"ERM": ERM.Config(), "MESSI": MESSI_OT}
RATES, WEIGHT_DECAYS = (1 / 3, 1.0, 5 / 3), (1e-4, 1e-6)
"""DiWA's learning rates 1e-5, 3e-5 and 5e-5 as multiples of the protocol's, and its weight decays."""
PROBE_SHARE, SMALL_DRAWS = 10, 3
"""A probe takes this fraction of the steps of a run; draws at the small scale."""
UNIFORM, GREEDY = "uniform average", "greedy average"
CHOICES: dict[str, AverageChoice] = {UNIFORM: "uniform", GREEDY: "greedy"}
_RUN_SEEDS = 1000
"""More than there are draws: no two runs share their seed."""


@dataclass(frozen=True)
class Model:
    """A row of the table: where to read it, and its two values."""

    average: str
    validation: Value
    target: Value


def _single_runs(value: Callable[[AveragedScores], float]) -> Value:
    """Return the mean of a value, in percent, over the runs of an average."""
    return lambda outcome: 100 * statistics.fmean(value(one) for one in outcome.result().averaged_runs)


def _best_run(value: Callable[[AveragedScores], float]) -> Value:
    """Return a value, in percent, of the run of an average with the highest validation score."""
    return lambda outcome: 100 * value(max(outcome.result().averaged_runs, key=_validation))


def _validation(run: AveragedScores) -> float:
    return run.validation


def _target(run: AveragedScores) -> float:
    return statistics.fmean(run.target.values())


ROWS = {
    "single runs, mean": Model(UNIFORM, _single_runs(_validation), _single_runs(_target)),
    "single run, best by validation": Model(UNIFORM, _best_run(_validation), _best_run(_target)),
    UNIFORM: Model(UNIFORM, source_accuracy, target_accuracy),
    GREEDY: Model(GREEDY, source_accuracy, target_accuracy),
}


@dataclass(frozen=True, kw_only=True)
class Diwa(Ablation):
    """Averages of runs with the same start, and the runs that they consist of."""

    title: ClassVar[str] = "Averages of runs with one start (DiWA)"
    claim: ClassVar[str] = "none; Rame et al. (2022) report 89.0 for DiWA and 85.5 for ERM with ResNet-50."
    compared_with: ClassVar[str] = f"ERM, {UNIFORM}"
    cost: ClassVar[str] = "480 runs of 5,000 steps, 24 linear probes of 500 steps and 48 averages"
    reduced: ClassVar[str] = (
        "5,000 embedded digits, rotated by six angles, instead of the paper's data, two of them held out in turn, a "
        f"small network without pretrained weights, {SMALL_DRAWS} runs per average instead of 20, which start from a "
        "run of 150 steps instead of a linear probe and take 150 steps with 16 images per domain, one seed"
    )

    backbone: str = DEIT_TI
    """A timm model; the small scale uses its own."""
    draws: Annotated[int, Bounds(minimum=1, maximum=_RUN_SEEDS - 1)] = 20
    """Runs per average; the small scale uses 3."""

    def runs(self) -> list[Planned]:
        """Return a start, runs from it and their averages for every seed, target and method."""
        kinds = self.planned(METHODS, self.benchmark("pacs"))
        return [planned for kind in kinds for planned in self._family(str(kind.labels["method"]), kind)]

    def report(self, results: Results) -> list[Section]:
        """Return single runs next to their averages, and the differences between the averages."""
        averages = Results([o for o in results.outcomes if isinstance(o.run, PlannedAverage)])
        targets = self.benchmark("pacs").targets
        table = Table(
            name="diwa",
            title="Single runs and their averages",
            explanation="Accuracy on the target in percent; validation is the mean over source domains and targets",
            provenance=self.provenance(averages),
            heads=("Method", "Model"),
            columns=tuple(Column(name, digits=2) for name in ("validation", *targets.values(), "Avg.")),
            groups=tuple(
                tuple(self._row(averages, method, model, list(targets)) for model in ROWS) for method in METHODS
            ),
        )
        return [table, self.differences(averages)]

    def _family(self, method: str, one: PlannedRun) -> list[Planned]:
        """Return everything of a method, target and seed."""
        base = replace(one.config, split_seed=one.config.seed)
        start = _relabelled(one, f"{method}, start", replace(base, training=self._start(base)))
        draws = range(SMALL_DRAWS if self.small else self.draws)
        members = [_relabelled(one, f"{method}, run {n + 1}", self._draw(base, start, n)) for n in draws]
        averages = [
            PlannedAverage({**one.labels, "method": f"{method}, {name}"}, members, choice)
            for name, choice in CHOICES.items()
        ]
        return [start, *members, *averages]

    def _start(self, base: RunConfig) -> TrainingConfig:
        """Return the schedule of the start: a linear probe, or half a run if there are no pretrained weights."""
        steps = base.resolved().training.steps
        if self.small:
            return replace(base.training, steps=steps // 2)
        probe = max(steps // PROBE_SHARE, 1)
        return replace(base.training, steps=probe, probe_steps=probe, evaluate_every=max(probe // 5, 1))

    def _draw(self, base: RunConfig, start: PlannedRun, number: int) -> RunConfig:
        """Return a run with settings drawn around the protocol's; they do not depend on method and target."""
        random = generator("diwa", base.seed, number)
        settings = base.resolved().training
        rate = settings.learning_rate * _drawn(RATES, random)
        training = replace(
            base.training,
            learning_rate=float(f"{rate:.3g}"),
            weight_decay=_drawn(WEIGHT_DECAYS, random),
            steps=settings.steps // 2 if self.small else settings.steps,
        )
        return replace(base, seed=_RUN_SEEDS * base.seed + number + 1, start=start.name, training=training)

    def _row(self, averages: Results, method: str, model: str, targets: Sequence[str]) -> Row:
        row = ROWS[model]
        label = f"{method}, {row.average}"
        validation = averages.cell(value=row.validation, method=label)
        by_target = [averages.cell(value=row.target, method=label, target=target) for target in targets]
        return Row((method, model), (validation, *by_target, averages.cell(value=row.target, method=label)))


def _relabelled(planned: PlannedRun, method: str, config: RunConfig) -> PlannedRun:
    return PlannedRun({**planned.labels, "method": method}, config)


def _drawn(values: Sequence[float], random: torch.Generator) -> float:
    return values[int(torch.randint(len(values), (), generator=random))]
