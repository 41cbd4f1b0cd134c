"""From raw inputs to what an encoder takes."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.transforms.v2 import (
    ColorJitter,
    Compose,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    functional,
)

from messi.core.batch import InputSpec


def prepare(inputs: Sequence[Tensor] | Tensor, spec: InputSpec) -> Tensor:
    """Resize raw images to the encoder's size, without a crop, and normalise them; features pass unchanged."""
    if len(spec.shape) == 1:
        return torch.stack(list(inputs))
    size = list(spec.shape[1:])
    return normalise(torch.stack([_resize(image, size) for image in inputs]), spec)


def augment(inputs: Sequence[Tensor] | Tensor, spec: InputSpec, *, seed: int) -> Tensor:
    """Apply the augmentation of DomainBed and the paper; the same seed gives the same images."""
    transform = Compose(
        [
            RandomResizedCrop(list(spec.shape[1:]), scale=(0.7, 1.0)),
            RandomHorizontalFlip(),
            ColorJitter(0.3, 0.3, 0.3, 0.3),
            RandomGrayscale(p=0.1),
        ]
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return normalise(torch.stack([transform(image) for image in inputs]), spec)


def normalise(images: Tensor, spec: InputSpec) -> Tensor:
    """Turn uint8 images [B, channels, H, W] into normalised floats."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (spec.mean, spec.std))
    return (images.float() / 255 - mean) / std


def _resize(image: Tensor, size: list[int]) -> Tensor:
    return image if list(image.shape[1:]) == size else functional.resize(image, size, antialias=True)
