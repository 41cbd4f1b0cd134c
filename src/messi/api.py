"""``messi.run`` and ``messi.average``: what ``messi train`` and ``messi average`` do, from Python."""

from collections.abc import Callable, Sequence
from pathlib import Path

from messi.core.run_documents import AverageChoice
from messi.core.rundir import RunDir
from messi.data.examples import Examples
from messi.engine import run as engine
from messi.engine.average_runs import average_runs
from messi.engine.config import RunConfig
from messi.engine.observers import Observer
from messi.reports.page import write_report


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    device: str | None = None,
    capture: bool = True,
    observers: Sequence[Observer] = (),
    load: Callable[[], Examples] | None = None,
) -> engine.RunResult:
    """Train, select a model by validation, test it once on the target domains, and write a report.

    Everything is saved in the run folder. Repeating the call resumes an interrupted run and returns the result of a
    finished one. The data must be unchanged, but may have moved.

    Args:
        config: what to run.
        out: the run folder; by default one under ``runs/`` that is named after the config.
        device: such as "cpu" or "cuda"; by default a GPU if there is one.
        capture: on a GPU, record the training step once and replay it; the result is the same.
        observers: objects that receive the progress of the run.
        load: returns the examples, such as those already loaded for another run; by default ``config.data.load``.

    """
    result = engine.run(config, out=out, device=device, capture=capture, observers=observers, load=load)
    return _reported(result)


def average(
    runs: Sequence[str | Path],
    *,
    choice: AverageChoice = "uniform",
    out: str | Path | None = None,
    device: str | None = None,
    algorithm: str | Path | None = None,
) -> engine.RunResult:
    """Average the weights of finished runs into one model, test it once on the target domains, and write a report.

    The runs must have begun with the same weights and must validate on the same examples. The result is a run folder.
    Repeating the call returns the result of a finished average.

    Args:
        runs: the run folders.
        choice: "uniform" averages all runs; "greedy" adds them in the order of their validation scores, unless the
            score of the average falls.
        out: the folder of the average; by default one under ``runs/``.
        device: such as "cpu" or "cuda"; by default a GPU if there is one.
        algorithm: the file with the method if it is your own.

    """
    return _reported(average_runs(runs, choice=choice, out=out, device=device, algorithm=algorithm))


def _reported(result: engine.RunResult) -> engine.RunResult:
    """Write the report of a run that has none."""
    folder = RunDir(result.path)
    if not folder.report.exists():
        write_report([folder.path], folder.report)
    return result
