"""From a config to a finished run: a folder with records, the selected model and a result."""

import functools
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from messi.core.info import version
from messi.core.processes import Processes, tell
from messi.core.rundir import RunDir
from messi.core.seeding import deterministic
from messi.core.tensorfile import write_tensors
from messi.data.examples import Examples
from messi.data.progress import DataProgress
from messi.engine.build import build_run, pick_device
from messi.engine.config import RunConfig
from messi.engine.find_run import find_run
from messi.engine.finish import finish
from messi.engine.follow import Begun, follow
from messi.engine.loop import train
from messi.engine.observers import Observer


@dataclass(frozen=True)
class RunResult:
    """The folder of a run and its accuracy."""

    path: Path
    selected_step: int
    """The selected step, or the last of the averaged ones."""
    source_val: dict[str, float]
    """Accuracy of the selected model on the held-out part of every source domain."""
    target: dict[str, float]
    """Accuracy on every target domain."""
    fresh: bool = True
    """False if the run was finished before and nothing was done."""


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    device: str | None = None,
    capture: bool = True,
    observers: Sequence[Observer] = (),
    load: Callable[[], Examples] | None = None,
    progress: DataProgress | None = None,
    processes: Processes | None = None,
) -> RunResult:
    """Train, select a model, test it once on the target and save everything in a folder.

    Repeating the call resumes an interrupted run and returns the result of a finished one. The data must not have
    changed, but may have been moved.

    Args:
        config: what to run.
        out: the run folder; by default one in ``runs/`` that is named by the config.
        device: such as "cpu" or "cuda"; by default a GPU if there is one.
        capture: on a GPU, capture the training step once as a CUDA graph and replay it; the result is the same.
        observers: objects that follow the progress.
        load: returns the examples, for example those already loaded for another run; by default ``config.data.load``.
        progress: follows the encoding of images by a frozen encoder.
        processes: those that take the steps together and call this function together; all return the same result.

    """
    options: dict[str, Any] = {"device": device, "capture": capture, "load": load, "progress": progress}
    if processes is None:
        folder, fresh = _advance(config, None, out=out, observers=observers, **options)
        return read_result(folder, fresh=fresh)
    with processes.together():
        if not processes.leads:
            followed: RunResult = follow(config, processes, **options)
            return followed
        folder, fresh = _advance(config, None, out=out, observers=observers, processes=processes, **options)
        result = read_result(folder, fresh=fresh)
        processes.share(result)
    return result


def run_until(
    config: RunConfig,
    step: int,
    *,
    out: str | Path,
    device: str | None = None,
    load: Callable[[], Examples] | None = None,
    processes: Processes | None = None,
) -> None:
    """Train until an evaluation, at which the run pauses with a checkpoint; the other arguments are those of a run.

    A run that was paused and resumed is the same as an undisturbed one, because its config states all its steps.
    """
    options: dict[str, Any] = {"device": device, "load": load}
    with processes.together() if processes else nullcontext():
        if processes and not processes.leads:
            follow(config, processes, **options)
        else:
            _advance(config, step, out=out, processes=processes, **options)
            tell(processes, None)


def _advance(  # noqa: PLR0913 (what the two functions above have in common)
    config: RunConfig,
    until: int | None,
    *,
    out: str | Path | None,
    device: str | None,
    capture: bool = True,
    observers: Sequence[Observer] = (),
    load: Callable[[], Examples] | None,
    progress: DataProgress | None = None,
    processes: Processes | None = None,
) -> tuple[RunDir, bool]:
    """Train until a step, or to the end, and return the folder and whether there was anything to do."""
    config = config.resolved()
    load = functools.cache(load or config.data.load)
    folder, config = find_run(config, out, load)
    if folder.is_finished(config.to_dict(), version()):
        folder.require_data(load().fingerprint)
        tell(processes, None)
        return folder, False
    if config.start is None:
        config.encoder.check_weights()
    chosen = pick_device(device)
    examples = load()
    with deterministic(enabled=config.training.deterministic):
        parts = build_run(
            config, examples, folder, chosen, observers, capture=capture, progress=progress, processes=processes
        )
        tell(processes, Begun(folder.path, parts.algorithm.precision))
        with folder.locked(), closing(parts.metrics):
            folder.begin(parts.description)
            fresh = folder.state() != "done"  # another process may have finished it while the data was loaded
            if fresh:
                if not folder.seen.exists():
                    write_tensors(folder.seen, parts.seen, {})
                if train(parts, until):
                    finish(parts)
            else:
                tell(processes, None)
    return folder, fresh


def read_result(folder: RunDir, *, fresh: bool) -> RunResult:
    """Return the result of a finished run."""
    result = folder.read_result()
    return RunResult(folder.path, result.selected_step, result.source_val, result.target, fresh)
