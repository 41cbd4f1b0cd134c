"""A small image problem for the methods that require a vision transformer."""

import dataclasses
from typing import Any

import torch

from messi.algorithms.common.base import ALGORITHMS, Algorithm, build
from messi.core.batch import Batch, Task
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig

NAMES = ("gmoe", "omoe", "dynmoe")
SIZE = 48
"""Nine patches and a class token."""
ENCODER = EncoderConfig(backbone="test_vit", pretrained=False)


def make(name: str, *, num_domains: int = 3, **settings: Any) -> Any:
    """Return a method for two classes, by default with experts in block 4 of 6."""
    torch.manual_seed(0)
    task = Task(input_shape=(3, SIZE, SIZE), num_classes=2, num_domains=num_domains)
    return build(dataclasses.replace(ALGORITHMS.config(name)(), **settings), task=task, encoder=ENCODER)


def separable(seed: int, *, num_domains: int = 3, per_domain: int = 8) -> Batch:
    """Two classes of different brightness, with noise and a different colour in every domain."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (num_domains * per_domain,), generator=generator)
    domains = torch.arange(num_domains).repeat_interleave(per_domain)
    inputs = torch.randn(len(labels), 3, SIZE, SIZE, generator=generator)
    inputs[:, 0] += (2.0 * labels - 1)[:, None, None]
    inputs[:, 1] += 0.3 * domains[:, None, None]
    return Batch(inputs=inputs, labels=labels, domains=domains, step=seed + 1)


def fit(algorithm: Algorithm, steps: int, *, first: int = 0, stepper: AdamStepper | None = None) -> AdamStepper:
    """Train on new batches, each with its own seed."""
    stepper = stepper or AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0))
    algorithm.train()
    for step in range(first, first + steps):
        torch.manual_seed(step)
        algorithm.update(separable(step), stepper)
    return stepper
