"""The training loop, with every side effect visible."""

import signal
import statistics
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.core.batch import LossTerms, Task
from messi.core.processes import Processes
from messi.core.records import EvaluationRecord, Role
from messi.core.registry import short_name
from messi.core.run_documents import RunDescription
from messi.core.rundir import RunDir
from messi.core.seeding import seed_torch
from messi.data.loader import Loader
from messi.engine.async_writer import AsyncWriter
from messi.engine.averaging.averager import Averager
from messi.engine.capture import Updater
from messi.engine.checkpoint import Checkpoint, FrozenWeights, load_checkpoint, training_state
from messi.engine.config import RunConfig
from messi.engine.interrupt import Interrupted, stop_on_signal
from messi.engine.metrics_log import Metrics, MetricsLog
from messi.engine.observers import Stopwatch
from messi.engine.stepper import AdamStepper
from messi.evaluation.measure import evaluation_records, predict_role, role_record
from messi.evaluation.model import ModelDescription, save_model
from messi.evaluation.predict import Predictions
from messi.evaluation.selection import RULES, select


@dataclass(frozen=True, kw_only=True)
class TrainingParts:
    """What training needs; none of it is on disk."""

    config: RunConfig
    """A resolved config."""
    algorithm: Algorithm
    stepper: AdamStepper
    averager: Averager | None
    """None if weights are not averaged."""
    loader: Loader
    metrics: Metrics
    stopwatch: Stopwatch
    task: Task
    capture: bool = True
    """Whether steps may be captured as a CUDA graph."""
    processes: Processes | None = None
    """The processes that take the steps together; None if this one is alone."""
    description: RunDescription
    """Saved with the selected model and, in a run, as ``run.json``."""
    frozen: FrozenWeights
    """The weights of the encoder that do not train."""


@dataclass(frozen=True, kw_only=True)
class RunParts(TrainingParts):
    """The parts of one run: those of its training, and its folder."""

    folder: RunDir
    metrics: MetricsLog
    seen: dict[str, Tensor]
    """Digests of the examples in each role except the target."""


def train(parts: RunParts, until: int | None = None) -> bool:
    """Train from the last checkpoint, or from the start, to the last step or until the average is complete.

    With ``until``, stop after that evaluation at the latest. Return whether training is over.
    """
    training, metrics = parts.config.training, parts.metrics
    done = load_checkpoint(
        parts.folder.last,
        run=parts.folder.identity(),
        algorithm=parts.algorithm,
        stepper=parts.stepper,
        metrics=metrics,
        averager=parts.averager,
        frozen=parts.frozen,
    )
    if parts.processes:
        parts.processes.share(follower_state(parts))
    update = begin_training(parts, done)
    with stop_on_signal() as stop, AsyncWriter() as writer:
        for step in remaining_steps(parts, done, until or training.steps):
            writer.check()
            asked = parts.processes is not None and parts.processes.agree(step, stop=bool(stop))[1]
            evaluated, selected = advance(parts, update, step)
            stopping = bool(stop) or asked  # read once: a signal after the checkpoint waits for the next one
            if evaluated or stopping:
                _save(parts, writer, step, selected=selected)
            for observer in metrics.observers:
                observer.stepped(step)
            if stopping and step < training.steps:
                writer.wait()
                progress = f"{_name(parts)} after step {step} of {training.steps}"
                raise Interrupted(f"Stopped {progress}; the state is saved.", stop.signal or signal.SIGTERM)
            done = step
    if parts.processes:
        parts.processes.agree(0, stop=False)
    return done == training.steps or _averaged(parts)


def _name(parts: RunParts) -> str:
    return f"{short_name(parts.config.algorithm.name)} with target {'+'.join(parts.description.target) or 'none'}"


def begin_training(parts: TrainingParts, done: int = 0) -> Updater:
    """Prepare for the steps after ``done``, and return what takes them."""
    parts.algorithm.train()
    for observer in parts.metrics.observers:
        observer.started(done, parts.config.training.steps)
    return Updater(
        parts.algorithm, parts.stepper, parts.loader.device, capture=parts.capture, processes=parts.processes
    )


def remaining_steps(parts: TrainingParts, done: int, last: int) -> Iterator[int]:
    """Yield the steps after ``done`` up to ``last``, or until the average is complete."""
    for step in range(done + 1, last + 1):
        if _averaged(parts):
            return
        yield step


def _averaged(parts: TrainingParts) -> bool:
    """Return whether the average is complete, so that no further step can change it."""
    return parts.averager is not None and parts.averager.ended


def advance(parts: TrainingParts, update: Updater, step: int) -> tuple[bool, bool]:
    """Take a step, log and evaluate where due; return whether the step was evaluated and whether it is the best."""
    parts.metrics.add(take_step(parts, update, step))
    if parts.averager:
        parts.averager.add(step)
    if step % parts.config.training.log_every == 0 or step == parts.config.training.steps:
        parts.metrics.flush(step)
    evaluated = _is_evaluated(parts, step)
    return evaluated, evaluated and _evaluate_and_select(parts, step)


def take_step(parts: TrainingParts, update: Updater, step: int) -> LossTerms:
    """Take a step without waiting for the device; several processes compare their weights before an evaluation."""
    seed_torch(parts.loader.device, "step", parts.config.seed, step)
    with _watched(parts, "step"):
        terms = update(parts.loader.batch(step))
        if parts.processes and _is_evaluated(parts, step):
            parts.processes.require_same(list(parts.algorithm.state_dict().values()), "The weights")
    return terms


def _watched(parts: TrainingParts, work: str) -> AbstractContextManager[None]:
    """Let the other processes notice if this work does not end."""
    return parts.processes.heartbeat.during(work) if parts.processes else nullcontext()


def _is_evaluated(parts: TrainingParts, step: int) -> bool:
    training = parts.config.training
    return step % training.evaluate_every == 0 or step == training.steps


def follower_state(parts: TrainingParts) -> dict[str, Tensor]:
    """Return what the other processes must know of the state before the next step."""
    return {name: tensor.cpu() for name, tensor in training_state(parts.algorithm, parts.stepper).items()}


def measure(parts: TrainingParts, role: Role, step: int, *, averaged: bool = False) -> dict[int, Predictions]:
    """Predict every domain in a role, record the metrics and return the predictions."""
    predictions = predict_role(parts.algorithm, parts.loader, role)
    data = parts.loader.data
    of: dict[str, Any] = {"role": role, "step": step, "averaged": averaged, "unbalanced": data.unbalanced}
    for record in evaluation_records(predictions, domain_names=data.domain_names, **of):
        parts.metrics.write(record)
    if predictions:
        parts.metrics.write(role_record(predictions, **of))
    return predictions


def validation_roles(parts: TrainingParts) -> list[Role]:
    """Return the roles that have data and may be read during training."""
    roles: tuple[Role, ...] = ("source_val", "unseen_val")
    return [role for role in roles if parts.loader.data.domains(role)]


def _evaluate_and_select(parts: TrainingParts, step: int) -> bool:
    """Evaluate the model and return whether it is the best so far."""
    metrics, rule = parts.metrics, parts.config.training.selection
    parts.stopwatch.pause()
    with _watched(parts, "evaluation"):
        for role in validation_roles(parts):
            measure(parts, role, step)
    evaluations = [r for r in metrics.evaluations if r.step == step and r.role == RULES[rule].role]
    records = [record for record in evaluations if isinstance(record, EvaluationRecord)]
    for observer in metrics.observers:
        observer.evaluated(step, statistics.fmean(record.accuracy for record in records))
    if parts.averager:
        parts.averager.end_segment(step, statistics.fmean(record.loss for record in records))
        if parts.averager.ended and metrics.rows:
            metrics.flush(step)
    return select(metrics.evaluations, rule).step == step


def model_description(parts: TrainingParts, step: int, averaged: tuple[int, int] | None = None) -> ModelDescription:
    """Return the description of a model file with the weights after a step, or with averaged weights."""
    return ModelDescription(
        **vars(parts.description),
        run=parts.folder.identity() if isinstance(parts, RunParts) else None,
        step=step,
        averaged_steps=averaged,
        task=parts.task,
        spec=parts.loader.spec,
    )


def _save(parts: RunParts, writer: AsyncWriter, step: int, *, selected: bool) -> None:
    """Start to save the model, if it was selected, and then a checkpoint."""
    folder = parts.folder
    parts.metrics.check(step)
    writer.wait()  # before the next copies are made, so that memory holds those of one step only
    checkpoint = Checkpoint(
        run=folder.identity(),
        step=step,
        algorithm=parts.algorithm,
        stepper=parts.stepper,
        metrics=parts.metrics,
        averager=parts.averager,
        frozen=parts.frozen,
        model=selected,
    )
    description = model_description(parts, step)

    def write() -> None:
        # The model first: a run that resumes from the checkpoint does not select this step again.
        if selected:
            save_model(folder.model, checkpoint.weights(), description)
        checkpoint.write(folder.last)

    writer.submit(write)
