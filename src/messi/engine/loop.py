"""The training loop, with every side effect visible."""

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
from messi.engine.averaging.averager import Averager
from messi.engine.capture import Updater
from messi.engine.checkpoint import NOTHING_FROZEN, Checkpoint, FrozenWeights, load_checkpoint
from messi.engine.config import RunConfig
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
    config: RunConfig
    """A resolved config."""
    algorithm: Algorithm
    stepper: AdamStepper
    averager: Averager | None
    """None if the weights of a single step become the model."""
    loader: Loader
    metrics: MetricsLog
    stopwatch: Stopwatch
    task: Task
    capture: bool
    """Whether steps may be captured as a CUDA graph."""
    seen: dict[str, Tensor]
    """Digests of the examples in each role except the target."""
    description: RunDescription
    """Saved as ``run.json`` and with the selected model."""
    frozen: FrozenWeights = NOTHING_FROZEN
    """The weights of the encoder that do not train."""


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
    parts.algorithm.train()
    update = Updater(parts.algorithm, parts.stepper, parts.loader.device, capture=parts.capture)
    for observer in metrics.observers:
        observer.started(done, training.steps)
    with stop_on_signal() as stop, AsyncWriter() as writer:
        for step in _remaining_steps(parts, done, until or training.steps):
            writer.check()
            last = step == training.steps
            _take_step(parts, update, step)
            if step % training.log_every == 0 or last:
                metrics.flush(step)
            evaluated = step % training.evaluate_every == 0 or last
            selected = evaluated and _evaluate_and_select(parts, step)
            stopping = bool(stop)  # read once: a signal after the checkpoint waits for the next one
            if evaluated or stopping:
                _save(parts, writer, step, selected=selected)
            for observer in metrics.observers:
                observer.stepped(step)
            if stopping and not last:
                writer.wait()
                progress = f"{_name(parts)} after step {step} of {training.steps}"
                raise Interrupted(f"Stopped {progress}; the state is saved.", stop.signal)
            done = step
    return done == training.steps or _averaged(parts)


def _name(parts: RunParts) -> str:
    return f"{short_name(parts.config.algorithm.name)} with target {'+'.join(parts.description.target) or 'none'}"


def _remaining_steps(parts: RunParts, done: int, last: int) -> Iterator[int]:
    for step in range(done + 1, last + 1):
        if _averaged(parts):
            return
        yield step


def _averaged(parts: RunParts) -> bool:
    """Return whether the average is complete, so that no further step can change it."""
    return parts.averager is not None and parts.averager.ended


def _take_step(parts: RunParts, update: Updater, step: int) -> None:
    """Take a step without waiting for the device."""
    torch.manual_seed(derive_seed("step", parts.config.seed, step))
    parts.metrics.add(update(parts.loader.batch(step)))
    if parts.averager:
        parts.averager.add(step)


def measure(parts: RunParts, role: Role, step: int, *, averaged: bool = False) -> dict[int, Predictions]:
    """Predict every domain in a role, record the metrics and return the predictions."""
    predictions = predict_role(parts.algorithm, parts.loader, role)
    names = parts.loader.data.domain_names
    for record in evaluation_records(predictions, role=role, step=step, domain_names=names, averaged=averaged):
        parts.metrics.write(record)
    if predictions:
        parts.metrics.write(role_record(predictions, role=role, step=step, averaged=averaged))
    return predictions


def validation_roles(parts: RunParts) -> list[Role]:
    """Return the roles that have data and may be read during training."""
    roles: tuple[Role, ...] = ("source_val", "unseen_val")
    return [role for role in roles if parts.loader.data.domains(role)]


def _evaluate_and_select(parts: RunParts, step: int) -> bool:
    """Evaluate the model and return whether it is the best so far; with averaged weights, no step is selected."""
    metrics, rule = parts.metrics, parts.config.training.selection
    parts.stopwatch.pause()
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
        return False
    return select(metrics.evaluations, rule).step == step


def model_description(parts: RunParts, step: int, averaged: tuple[int, int] | None = None) -> ModelDescription:
    """Return the description of a model file with the weights after a step, or with averaged weights."""
    return ModelDescription(
        **vars(parts.description),
        run=parts.folder.identity(),
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
