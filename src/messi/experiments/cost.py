"""Cost of training and prediction: seconds per 1,000 steps after a warm-up, and images per second.

Claim: MESSI's invariance term slows down training, to 4.2 times ERM's time with MMD and 12.4 times with OT, but not
prediction.
Command: messi reproduce cost --path FOLDER (that contains PACS); one run at a time on an otherwise idle device
Cost: 21 runs of 1,100 steps.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from messi.core.run_documents import Timing
from messi.core.rundir import RunDir
from messi.engine.config import RunConfig
from messi.engine.observers import WARM_UP
from messi.experiments.common.base import Experiment
from messi.experiments.common.benchmarks import BENCHMARKS, STAND_IN
from messi.experiments.common.methods import ROWS, backbone_title
from messi.experiments.common.paper_numbers import TRAINING_TIME
from messi.models.encoder import EncoderConfig
from messi.reports.plan_page import Section
from messi.reports.statistics import Summary, summarise
from messi.reports.table import Cell, Column, Published, Row, Table
from messi.studies.common.results import Results
from messi.sweeps.plan import PlannedRun

TIMED = tuple(method for method, _ in TRAINING_TIME)
SMALL_TIMED = ("ERM", "SAGM", "MESSI-S-MMD", "MESSI-S-OT")
COLUMNS = (
    Column("Train, s", "down", 2),
    Column("Rel.", "down", 2),
    Column("With evaluations, s", "down", 2),
    Column("Images/s", "up", 0),
    Column("Infer. rel.", "down", 2),
)
NOT_TIMED = (
    "A run was stopped near its end, so nothing was timed after it resumed; delete its folder and repeat the command."
)

Value = Callable[[Timing, Timing], float]
"""A number from the timing of a run and the timing of ERM with the same seed."""


def _training(timing: Timing, _erm: Timing) -> float:
    return 1000 * timing.seconds / timing.steps


def _with_evaluations(timing: Timing, _erm: Timing) -> float:
    return 1000 * timing.seconds_with_evaluations / timing.steps


def _images(timing: Timing, _erm: Timing) -> float:
    inference = timing.inference
    return inference.images / inference.seconds if inference and inference.seconds else math.nan


VALUES: tuple[Value, ...] = (
    _training,
    lambda timing, erm: _training(timing, erm) / _training(erm, erm),
    _with_evaluations,
    _images,
    lambda timing, erm: _images(erm, erm) / _images(timing, erm),
)


@dataclass(frozen=True, kw_only=True)
class Cost(Experiment):
    """Training and prediction times by method."""

    title: ClassVar[str] = "Cost of training and prediction"
    claim: ClassVar[str] = (
        "On an H100, 1,000 steps on PACS take 4.24 times as long as ERM's with MESSI-S-MMD and 12.39 times with "
        "MESSI-S-OT; prediction costs as much as the backbone."
    )
    compared_with: ClassVar[str] = "ERM"
    cost: ClassVar[str] = "21 runs of 1,100 steps, on an otherwise idle device"
    reduced: ClassVar[str] = (
        "embedded digits instead of PACS, a small network on the CPU instead of the paper's, without the methods that "
        "require a vision transformer, 300 steps after the warm-up, one seed"
    )

    path: str | None = None
    """Folder that contains the folder of PACS; by default $MESSI_HOME/data."""

    def runs(self) -> list[PlannedRun]:
        """Return a run for every row and seed; methods alternate, so that none runs on a warmer device."""
        return [
            PlannedRun({"method": method, "seed": seed}, self._config(method, seed))
            for seed in self.all_seeds()
            for method in self._methods
        ]

    def report(self, results: Results) -> list[Section]:
        """Return the table."""
        results = results.readable(RunDir.read_timing)
        rows = tuple(self._row(results, method) for method in self._methods)
        provenance = results.provenance(data=self._circumstances(results), reduced=self.reduced if self.small else "")
        explanation = (
            f"Seconds per 1,000 steps after the first {WARM_UP}, without and with evaluations, the former relative to "
            "ERM; images of the target per second, including reading and resizing, and the time for them relative to "
            "ERM. The paper gives prediction times without a unit, so only their ratio to ERM is compared"
        )
        return [
            Table(
                name="cost",
                title="Time of training and prediction",
                explanation=explanation,
                provenance=provenance,
                heads=("Method", "Backbone"),
                columns=COLUMNS,
                groups=(rows,),
            )
        ]

    @property
    def _methods(self) -> tuple[str, ...]:
        return SMALL_TIMED if self.small else TIMED

    def _backbone(self, method: str) -> str:
        return "tiny_cnn" if self.small else ROWS[method].backbone

    def _config(self, method: str, seed: int) -> RunConfig:
        benchmark = STAND_IN if self.small else BENCHMARKS["pacs"]
        # The timer starts and stops at evaluations, so there is one every 100 steps. The time of a step does not depend
        # on the weights, so pretrained ones are not needed.
        training = dataclasses.replace(
            ROWS[method].training, steps=WARM_UP + (300 if self.small else 1000), evaluate_every=WARM_UP
        )
        return RunConfig(
            data=benchmark.config(self.path),
            target=(next(iter(benchmark.targets)),),
            algorithm=ROWS[method].algorithm,
            encoder=EncoderConfig(backbone=self._backbone(method), pretrained=False, frozen_batch_norm=True),
            training=training,
            seed=seed,
        )

    def _row(self, results: Results, method: str) -> Row:
        backbone = backbone_title(self._backbone(method))
        timings, erm = _timings(results, method), _timings(results, self.compared_with)
        cell = results.state(method=method)
        done = [o for o in results.where(method=method) if o.state == "done"]
        if cell.state == "done" and len(timings) < len(done):
            cell = Cell(state="failed", reason=NOT_TIMED)
        paper = _paper(method, backbone)
        cells = tuple(
            dataclasses.replace(cell, ours=_summary(value, timings, erm), paper=paper.get(column.name))
            for value, column in zip(VALUES, COLUMNS, strict=True)
        )
        return Row((method, backbone), cells, method.startswith("MESSI"))

    def _circumstances(self, results: Results) -> str:
        """Return the data and the devices."""
        timings = [timing for method in self._methods for timing in _timings(results, method).values()]
        data = "Rotated MNIST (embedded digits), target 0" if self.small else "PACS, target art_painting"
        return "; ".join([data, *sorted({timing.device for timing in timings})])


def _timings(results: Results, method: str) -> dict[int, Timing]:
    """Return the timings by seed."""
    done = [outcome for outcome in results.where(method=method) if outcome.state == "done"]
    found = {int(outcome.labels["seed"]): RunDir(outcome.path).read_timing() for outcome in done}
    return {seed: timing for seed, timing in found.items() if timing.steps}


def _summary(value: Value, timings: Mapping[int, Timing], erm: Mapping[int, Timing]) -> Summary | None:
    values = [value(timing, erm[seed]) for seed, timing in sorted(timings.items()) if seed in erm]
    return summarise(values) if values else None


def _paper(method: str, backbone: str) -> dict[str, Published]:
    numbers = TRAINING_TIME.get((method, backbone))
    if numbers is None:
        return {}
    erm = TRAINING_TIME["ERM", "ResNet-50"]["Infer."].mean
    ratio = Published(numbers["Infer."].mean / erm)
    return {"Train, s": numbers["Train"], "Rel.": numbers["Rel."], "Infer. rel.": ratio}
