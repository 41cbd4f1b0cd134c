"""What all processes of a run do except the first: take the steps that the leader announces, and write nothing."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from messi.core.precision import Precision
from messi.core.processes import Processes
from messi.core.rundir import RunDir
from messi.core.seeding import deterministic
from messi.data.examples import Examples
from messi.data.progress import DataProgress
from messi.engine.build import build_run, pick_device
from messi.engine.checkpoint import restore_training
from messi.engine.config import RunConfig
from messi.engine.interrupt import stop_on_signal
from messi.engine.loop import TrainingParts, begin_training, take_step
from messi.engine.metrics_log import MetricsLog


class Begun(NamedTuple):
    """What the leader tells the others about a run that it has built."""

    folder: Path
    precision: Precision | None
    """A resumed run keeps its precision, which only the leader may be able to read."""


def follow(
    config: RunConfig,
    processes: Processes,
    *,
    device: str | None,
    capture: bool = True,
    load: Callable[[], Examples] | None,
    progress: DataProgress | None = None,
) -> Any:
    """Take part in a run and return the leader's result."""
    begun: Begun | None = processes.share()
    if begun is not None:  # the run is not finished yet, and the leader has built it
        config = config.resolved()
        examples = (load or config.data.load)()
        with deterministic(enabled=config.training.deterministic):
            built = build_run(
                config,
                examples,
                RunDir(begun.folder),
                pick_device(device),
                capture=capture,
                precision=begun.precision,
                progress=progress,
                processes=processes,
            )
            _train(dataclasses.replace(built, averager=None, metrics=MetricsLog(built.folder.records, [])), processes)
    return processes.share()


def _train(parts: TrainingParts, processes: Processes) -> None:
    """Take steps until the leader has no more."""
    state = processes.share()
    if state is None:  # the run was finished in the meantime
        return
    restore_training(state, parts.algorithm, parts.stepper)
    update = begin_training(parts)
    with stop_on_signal() as stop:
        while step := processes.agree(0, stop=bool(stop))[0]:
            take_step(parts, update, step)
