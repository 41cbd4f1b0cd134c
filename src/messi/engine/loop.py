"""The training loop, with every side effect in sight."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.core.batch import Task
from messi.core.records import EvaluationRecord, Role
from messi.core.registry import short_name
from messi.core.run_documents import RunDescription
from messi.core.rundir import RunDir
from messi.core.seeding import derive_seed
from messi.data.loader import Loader
from messi.engine.async_writer import AsyncWriter
from messi.engine.averaging.swad import Averager
from messi.engine.capture import Updater
from messi.engine.checkpoint import Checkpoint, load_checkpoint
from messi.engine.config import Settings
from messi.engine.interrupt import Interrupted, stop_on_signal
from messi.engine.metrics_log import MetricsLog
from messi.engine.observers import Stopwatch
from messi.engine.stepper import AdamStepper
from messi.evaluation.measure import evaluation_records, predict_role, role_record
from messi.evaluation.model import ModelDescription, save_model
from messi.evaluation.predict import Predictions
from messi.evaluation.selection import RULES, select


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """The parts of one run."""

    folder: RunDir
    config: Settings
    seed: int
    algorithm: Algorithm
    stepper: AdamStepper
    averager: Averager | None
    """None where the weights of one step are the model."""
    loader: Loader
    ledger: MetricsLog
    stopwatch: Stopwatch
    task: Task
    capture: bool
    """Whether steps may be recorded as a CUDA graph."""
    seen: dict[str, Tensor]
    """Digests of the examples in each role but the target's."""
    description: RunDescription
    """What is saved with the selected model."""


def train(training: RunParts) -> None:
    """Train to the last step, or to the end of SWAD's valley; from the last checkpoint if there is one."""
    config, ledger = training.config, training.ledger
    done = load_checkpoint(
        training.folder.last,
        run=training.folder.identity(),
        algorithm=training.algorithm,
        stepper=training.stepper,
        ledger=ledger,
        averager=training.averager,
    )
    training.algorithm.train()
    update = Updater(training.algorithm, training.stepper, training.loader.device, capture=training.capture)
    for observer in ledger.observers:
        observer.started(done, config.steps)
    with stop_on_signal() as stop, AsyncWriter() as saver:
        for step in _remaining(training, done):
            saver.check()
            last = step == config.steps
            _take(training, update, step)
            if step % config.log_every == 0 or last:
                ledger.flush(step)
            evaluated = step % config.evaluate_every == 0 or last
            selected = evaluated and _evaluate_and_select(training, step)
            stopping = bool(stop)  # read once: a signal that comes after the checkpoint waits for the next one
            if evaluated or stopping:
                _save(training, saver, step, selected=selected)
            for observer in ledger.observers:
                observer.stepped(step)
            if stopping and not last:
                saver.wait()
                done_so_far = f"{_name(training)} after step {step} of {config.steps}"
                raise Interrupted(f"Stopped {done_so_far}; the state is saved.", stop.signal)


def _name(training: RunParts) -> str:
    described = training.description
    return f"{short_name(described.config['algorithm']['name'])} with target {'+'.join(described.target) or 'none'}"


def _remaining(training: RunParts, done: int) -> Iterator[int]:
    """Yield the steps to take; once SWAD's valley is over, there are none."""
    for step in range(done + 1, training.config.steps + 1):
        if training.averager and training.averager.over:
            return
        yield step


def _take(training: RunParts, update: Updater, step: int) -> None:
    """Take a step; nothing waits for the device."""
    torch.manual_seed(derive_seed("step", training.seed, step))
    if step == training.algorithm.restart:
        training.stepper.reset()
    training.ledger.add(update(training.loader.batch(step)))
    if training.averager:
        training.averager.add(step)


def measure(training: RunParts, role: Role, step: int, *, averaged: bool = False) -> dict[int, Predictions]:
    """Predict every domain in a role, record how well that went and return the predictions."""
    predictions = predict_role(training.algorithm, training.loader, role)
    names = training.loader.data.domain_names
    for record in evaluation_records(predictions, role=role, step=step, domain_names=names, averaged=averaged):
        training.ledger.write(record)
    if predictions:
        training.ledger.write(role_record(predictions, role=role, step=step, averaged=averaged))
    return predictions


def validation_roles(training: RunParts) -> list[Role]:
    """Return the roles that may be looked at during training and have data."""
    roles: tuple[Role, ...] = ("source_val", "unseen_val")
    return [role for role in roles if training.loader.data.domains(role)]


def _evaluate_and_select(training: RunParts, step: int) -> bool:
    """Evaluate the model and return whether it is the one to keep; where weights are averaged, it never is."""
    ledger, rule = training.ledger, training.config.selection
    training.stopwatch.pause()
    for role in validation_roles(training):
        measure(training, role, step)
    evaluations = [r for r in ledger.evaluations if r.step == step and r.role == RULES[rule].role]
    records = [record for record in evaluations if isinstance(record, EvaluationRecord)]
    for observer in ledger.observers:
        observer.evaluated(step, statistics.fmean(record.accuracy for record in records))
    if training.averager:
        training.averager.end_segment(step, statistics.fmean(record.loss for record in records))
        if training.averager.over and ledger.rows:
            ledger.flush(step)
        return False
    return select(ledger.evaluations, rule).step == step


def model_description(training: RunParts, step: int, averaged: tuple[int, int] | None = None) -> ModelDescription:
    """Return what is saved with the weights after a step, or with the mean of those of several."""
    return ModelDescription(
        **vars(training.description),
        run=training.folder.identity(),
        step=step,
        averaged_steps=averaged,
        task=training.task,
        spec=training.loader.spec,
    )


def _save(training: RunParts, saver: AsyncWriter, step: int, *, selected: bool) -> None:
    """Begin to save the model, if it was selected, and then the state that training continues from."""
    folder = training.folder
    training.ledger.check(step)
    saver.wait()  # before the copies are made: there is room for those of one step
    state = Checkpoint(
        run=folder.identity(),
        step=step,
        algorithm=training.algorithm,
        stepper=training.stepper,
        ledger=training.ledger,
        averager=training.averager,
    )

    description = model_description(training, step)

    def write() -> None:
        # The model first: once the checkpoint says that it was selected, nothing selects it again.
        if selected:
            save_model(folder.model, state.weights(), description)
        state.write(folder.last)

    saver.submit(write)
