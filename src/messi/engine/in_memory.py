"""Train without a run folder: nothing is read from or written to the disk."""

import torch

from messi.core.seeding import deterministic
from messi.data.examples import Examples
from messi.engine.async_writer import Snapshot
from messi.engine.build import build_training, fitted_spec, pick_device, split_of
from messi.engine.config import RunConfig
from messi.engine.finish import Chosen, choose
from messi.engine.loop import TrainingParts, advance, begin_training, model_description, remaining_steps
from messi.engine.metrics_log import Metrics
from messi.engine.observers import Stopwatch
from messi.evaluation.model import Model


def train_in_memory(config: RunConfig, examples: Examples, *, device: str | None = None) -> Model:
    """Train on all domains, and return the model that a run with the same config would save, to the bit.

    Unlike a run, it accepts a domain that is too small to be divided: such a domain is validated on its training
    examples.
    """
    config = config.resolved()
    config.encoder.check_weights()
    chosen_device = pick_device(device)
    with deterministic(enabled=config.training.deterministic):
        parts = _build(config, examples, chosen_device)
        chosen = _train(parts)
    sealed = parts.loader.data
    description = model_description(parts, chosen.step, chosen.averaged_steps)
    return Model(parts.algorithm.eval(), sealed.classes, parts.loader.spec, description)


def _build(config: RunConfig, examples: Examples, device: torch.device) -> TrainingParts:
    split = split_of(config, examples, share_small=True)
    stopwatch = Stopwatch(device)
    return build_training(
        config,
        examples,
        split,
        fitted_spec(config, examples, split),
        device,
        metrics=Metrics([stopwatch]),
        stopwatch=stopwatch,
    )


def _train(parts: TrainingParts) -> Chosen:
    """Take all steps and leave the method with the selected or averaged weights."""
    update = begin_training(parts)
    best = Snapshot({})
    for step in remaining_steps(parts, 0, parts.config.training.steps):
        evaluated, selected = advance(parts, update, step)
        if evaluated:
            parts.metrics.check(step)
        if selected:
            best = Snapshot(parts.algorithm.state_dict())
    chosen = choose(parts)
    if not chosen.averaged:
        parts.algorithm.load_state_dict(best.wait())
    return chosen
