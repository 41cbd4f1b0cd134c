"""A config becomes a finished run: a folder with records, the selected model, a result and a report."""

import functools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from messi.core.documents import write_document
from messi.core.info import version
from messi.core.records import EvaluationRecord, RoleRecord
from messi.core.run_documents import Result, RoleScores
from messi.core.rundir import RunDir
from messi.core.seeding import deterministic
from messi.core.tensorfile import write_tensors
from messi.data.examples import Examples
from messi.diagnostics.document import diagnose
from messi.engine.build import pick_device, prepare
from messi.engine.config import RunConfig
from messi.engine.finish import choose, evaluate_chosen
from messi.engine.loop import RunParts, train
from messi.engine.moved import find_run
from messi.engine.observers import Observer
from messi.evaluation.selection import RULES


@dataclass(frozen=True)
class RunResult:
    """Where a run lies and how it did."""

    path: Path
    selected_step: int
    """The last step that went into the weights."""
    source_val: dict[str, float]
    """Accuracy of the selected model on the held-out part of every source domain."""
    target: dict[str, float]
    """Accuracy on every target domain."""
    fresh: bool = True
    """False when the run had been finished before and nothing was done."""


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    device: str | None = None,
    capture: bool = True,
    observers: Sequence[Observer] = (),
    load: Callable[[], Examples] | None = None,
) -> RunResult:
    """Train, select, evaluate the target once, and leave everything in a folder.

    The same call again goes on where a killed run was, and does nothing when it is finished. Either
    way the data must be as it was, though it may lie in another place.

    Args:
        config: what to run.
        out: the run folder; by default one under ``runs/`` that is named by the config.
        device: such as "cpu" or "cuda"; by default a GPU if there is one.
        capture: on a GPU, record the step once and replay it; the result is the same.
        observers: objects that are told of progress.
        load: gives the examples, such as those already loaded for another run; by default ``config.data.load``.

    """
    config = config.resolved()
    load = functools.cache(load or config.data.load)
    folder, config = find_run(config, out, load)
    if folder.is_finished(config.to_dict(), version()):
        folder.require_data(load().fingerprint)
        return read_result(folder, fresh=False)
    config.encoder.check_weights()
    chosen = pick_device(device)
    examples = load()
    with deterministic(enabled=config.settings.deterministic):
        training = prepare(config, examples, folder, chosen, observers, capture=capture)
        with folder.locked(), closing(training.ledger):
            folder.begin(training.description)
            fresh = folder.state() != "done"  # another process may have finished it while the data was loaded
            if fresh:
                if not folder.seen.exists():
                    write_tensors(folder.seen, training.seen, {})
                train(training)
                _finish(training, config)
    return read_result(folder, fresh=fresh)


def read_result(folder: RunDir, *, fresh: bool) -> RunResult:
    """Return the result of a finished run."""
    result = folder.read_result()
    return RunResult(folder.path, result.selected_step, result.source_val, result.target, fresh)


def _finish(training: RunParts, config: RunConfig) -> None:
    chosen = choose(training)
    evaluate_chosen(training, chosen)
    averaged = chosen.averaged_steps is not None
    records = [r for r in training.ledger.evaluations if r.step == chosen.step and r.averaged == averaged]
    domains = [r for r in records if isinstance(r, EvaluationRecord)]
    accuracy = {role: {r.domain: r.accuracy for r in domains if r.role == role} for role in ("source_val", "target")}
    roles = [r for r in records if isinstance(r, RoleRecord)]
    result = Result(
        selection=chosen.selection,
        validation=RULES[config.settings.selection].role,
        selected_step=chosen.step,
        averaged_steps=chosen.averaged_steps,
        source_val=accuracy["source_val"],
        target=accuracy["target"],
        roles={r.role: RoleScores(count=r.count, accuracy=r.accuracy, macro_f1=r.macro_f1) for r in roles},
        target_part=config.settings.target_part,
        protocol=config.protocol,
        deviations=config.deviations(),
    )
    # Before the result, whose presence means that there is nothing left to do.
    document = diagnose(training.algorithm, training.loader, accuracy)
    write_document(training.folder.diagnostics, document, indent=None)
    write_document(training.folder.timing, training.stopwatch.timing(training.folder.identity()))
    training.ledger.writer.sync()
    training.folder.finish(result, training.ledger.writer.checksum)
