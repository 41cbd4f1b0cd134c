"""``messi.run``, ``messi.average`` and ``messi.compare``: what the commands do, from Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from messi.core.processes import join
from messi.core.run_documents import AverageChoice, ExpectedAccuracy
from messi.core.rundir import RunDir
from messi.data.examples import Examples
from messi.data.progress import DataProgress, LogProgress
from messi.engine import run as engine
from messi.engine.average_runs import average_runs
from messi.engine.config import RunConfig
from messi.engine.observers import Observer
from messi.reports.page import write_report
from messi.studies.common.execute import execute
from messi.studies.common.output import write_results
from messi.studies.common.results import Results
from messi.studies.compare import ComparisonConfig
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.launchers.local import Local


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    device: str | None = None,
    capture: bool = True,
    observers: Sequence[Observer] = (),
    load: Callable[[], Examples] | None = None,
    progress: DataProgress | None = None,
) -> engine.RunResult:
    """Train, select a model by validation, test it once on the target domains, and write a report.

    Everything is saved in the run folder. Repeating the call resumes an interrupted run and returns the result of a
    finished one. The data must be unchanged, but may have moved. Processes that torchrun has started take the steps of
    one run together; all of them must call this.

    Args:
        config: what to run.
        out: the run folder; by default one under ``runs/`` that is named after the config.
        device: such as "cpu" or "cuda"; by default a GPU if there is one.
        capture: on a GPU, record the training step once and replay it; the result is the same.
        observers: objects that receive the progress of the run.
        load: returns the examples, such as those already loaded for another run; by default ``config.data.load``.
        progress: receives the progress of encoding the images once, with ``tune="head"``.

    """
    processes = join()
    result = engine.run(
        config,
        out=out,
        device=device,
        capture=capture,
        observers=observers,
        load=load,
        progress=progress,
        processes=processes,
    )
    return result if processes and not processes.leads else _reported(result)


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


@dataclass(frozen=True)
class Compared:
    """The folder of a comparison, and its recommendation for every data set."""

    path: Path
    recommended: Mapping[str, str]
    """The method; a data set with unfinished runs is missing."""
    expected: Mapping[str, ExpectedAccuracy]
    """The accuracy of the recommended method on the held-out domains."""
    model: Path | None
    """The final model."""


def compare(
    options: ComparisonConfig, *, out: str | Path | None = None, launcher: Launcher | None = None, final: bool = False
) -> Compared:
    """Train every method with every domain held out in turn, recommend one, and write tables and a report.

    Everything is saved in the folder. Repeating the call resumes an interrupted comparison. A run that fails does not
    stop the others; ``messi report`` states why it failed. Runs are executed in new processes, so a script must call
    this under ``if __name__ == "__main__":``.

    Args:
        options: what to compare.
        out: the folder; by default one under ``compare/`` that is named after the data.
        launcher: where the runs are executed; by default on this machine.
        final: train the recommended method on all domains afterwards.

    """
    launcher, study = launcher or Local(), options.plan()
    if final:
        study.require_one_model()
    folder = Path(out) if out else study.default_folder
    results = Results(execute(study, folder, launcher, LogProgress()))
    write_results(study, results.outcomes, folder)
    model = study.final(results, folder) if final else None
    if model and model.train(launcher):
        write_results(study, results.outcomes, folder)  # now with the final model
    chosen = {data: found.method for data in study.by_data if (found := study.recommendation(results, data))}
    expected = {data: level for data, one in chosen.items() if (level := study.expected(results, data, one))}
    return Compared(folder, chosen, expected, model.file if model and model.file.exists() else None)


def _reported(result: engine.RunResult) -> engine.RunResult:
    """Write the report of a run that has none."""
    folder = RunDir(result.path)
    if not folder.report.exists():
        write_report([folder.path], folder.report)
    return result
