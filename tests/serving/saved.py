"""Model files of any method and backbone, whose random weights give confident and different answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.base import ALGORITHMS, Algorithm, build
from messi.core.batch import Task
from messi.core.info import version
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.images import Images
from messi.data.preprocess import prepare
from messi.engine.config import RunConfig
from messi.evaluation.model import ModelDescription, save_model
from messi.models.encoder import EncoderConfig

CLASSES = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu")


def photos(sizes: Sequence[tuple[int, int]], *, channels: int = 3, seed: int = 0) -> list[Tensor]:
    """Return images with large shapes, sharp edges and noise, like photographs and drawings."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for height, width in sizes:
        coarse = torch.rand(1, channels, 5, 4, generator=generator) * 330 - 40
        smooth = functional.interpolate(coarse, (height, width), mode="bicubic")[0]
        stripe = 150 * (torch.arange(width) // int(torch.randint(1, 30, (), generator=generator)) % 2)
        noise = 12 * torch.randn(channels, height, width, generator=generator)
        found.append((smooth + stripe * torch.rand((), generator=generator) + noise).clamp(0, 255).to(torch.uint8))
    return found


def save(path: Path, method: str, backbone: str, shape: tuple[int, ...], **settings: Any) -> Path:
    """Write a model file; its inputs are features [F] or images."""
    torch.manual_seed(0)
    encoder = EncoderConfig(backbone=backbone, pretrained=False, image_size=shape[1] if len(shape) == 3 else None)
    config = RunConfig(data=TwoSubsets(), algorithm=ALGORITHMS.config(method)(**settings), encoder=encoder)
    spec, task = encoder.input_spec(shape), Task(input_shape=shape, num_classes=len(CLASSES), num_domains=3)
    algorithm = build(config.algorithm, task=task, encoder=encoder)
    if len(shape) == 3:
        images = photos([(60, 80)] * 64, channels=shape[0], seed=1)
        inputs = prepare(Images.pack(images), spec)
    else:
        inputs = torch.randn(64, *shape)
    spread(algorithm, inputs)
    description = ModelDescription(
        config=config.resolved().to_dict(),
        version=version(),
        data="none",
        classes=CLASSES,
        sources=("one", "two", "three"),
        target=(),
        environment={},
        step=1,
        task=task,
        spec=spec,
    )
    save_model(path, algorithm.state_dict(), description)
    return path


@torch.no_grad()
def spread(algorithm: Algorithm, inputs: Tensor) -> None:
    """Scale the classifier, so that each class is the most probable one for some inputs, often by far.

    Random networks give almost equal probabilities, which no error could change by much.
    """
    for module in algorithm.modules():  # statistics of these inputs, as after training
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    algorithm.train()
    algorithm.predict(inputs)
    algorithm.eval()
    (classifier,) = {found for found in _used_classifiers(algorithm, inputs) if found.out_features == len(CLASSES)}
    logits = algorithm.predict(inputs).logits
    scale = 3 / logits.std(0)
    classifier.weight.mul_(scale[:, None])
    classifier.bias.copy_((classifier.bias - logits.mean(0)) * scale)


def _used_classifiers(algorithm: Algorithm, inputs: Tensor) -> list[nn.Linear]:
    used: list[nn.Linear] = []
    linear = [module for module in algorithm.modules() if isinstance(module, nn.Linear)]
    handles = [one.register_forward_hook(lambda module, *_: used.append(module)) for one in linear]
    algorithm.predict(inputs[:2])
    for handle in handles:
        handle.remove()
    return used


def sizes_of_500() -> list[tuple[int, int]]:
    """Return 500 sizes: one pixel, thin, small, odd, the network's own, larger and much larger."""
    rng = np.random.default_rng(0)
    fixed = [(1, 1), (1, 90), (90, 1), (2, 3), (47, 48), (48, 48), (48, 49), (64, 64), (96, 96), (1200, 900), (31, 700)]
    return fixed + [(int(h), int(w)) for h, w in rng.integers(2, 200, (500 - len(fixed), 2))]
