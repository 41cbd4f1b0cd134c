"""What the data sets made of MNIST share: digits dealt out to environments, rotated and coloured there."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode, functional

from messi.core.seeding import generator
from messi.data.digits import load_digits
from messi.data.examples import Examples, digest
from messi.data.images import Images

DIGITS = tuple("0123456789")
BELOW_FIVE = ("digits 5-9", "digits 0-4")


def deal_digits(source: str, data_seed: int, environments: int) -> list[tuple[Tensor, Tensor]]:
    """Shuffle the digits once and deal them like cards: images [n, 1, 28, 28] and digits [n] for each environment."""
    images, digits = load_digits(source)
    order = torch.randperm(len(digits), generator=generator("digits", data_seed))
    hands = [order[environment::environments] for environment in range(environments)]
    return [(images[hand, None], digits[hand]) for hand in hands]


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Turn images counter-clockwise; black comes in at the corners."""
    rotated: Tensor = functional.rotate(images, degrees, InterpolationMode.BILINEAR)
    return rotated


def draw_binary_labels(digits: Tensor, noise: float, stream: torch.Generator) -> Tensor:
    """Return whether each digit is below 5, wrong with probability ``noise``: bool [n]."""
    return (digits < 5) ^ _bernoulli(noise, len(digits), stream)


def color(images: Tensor, labels: Tensor, flip: float, stream: torch.Generator) -> Tensor:
    """Keep one channel of two: that of the label or, with probability ``flip``, the other: [n, 2, 28, 28]."""
    second = labels ^ _bernoulli(flip, len(labels), stream)
    return images * torch.stack([~second, second], dim=1)[:, :, None, None]


def join(parts: Sequence[tuple[Tensor, Tensor]], classes: tuple[str, ...], names: Sequence[str]) -> Examples:
    """Return the images and labels of all environments as one data set."""
    inputs = torch.cat([images for images, _ in parts])
    labels = torch.cat([part for _, part in parts])
    domains = torch.cat([torch.full_like(part, i) for i, (_, part) in enumerate(parts)])
    return Examples(
        inputs=Images.pack(inputs),
        labels=labels,
        domains=domains,
        classes=classes,
        domain_names=tuple(names),
        fingerprint=digest(inputs, labels, domains),
    )


def _bernoulli(probability: float, number: int, stream: torch.Generator) -> Tensor:
    return torch.rand(number, generator=stream) < probability
