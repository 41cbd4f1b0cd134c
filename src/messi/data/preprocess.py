"""From raw inputs to what an encoder takes, on the device that it runs on."""

from collections.abc import Sequence

import torch
from torch import Tensor

from messi.core.batch import InputSpec
from messi.core.seeding import generator
from messi.data.augment import augment, draw_parameters
from messi.data.resample import crop_and_resize, pad_together


def prepare(inputs: Sequence[Tensor] | Tensor, spec: InputSpec, device: torch.device) -> Tensor:
    """Resize raw images to the encoder's size, without a crop, and normalise them; features pass unchanged."""
    if len(spec.shape) == 1:
        return torch.stack(list(inputs)).to(device)
    images, sizes = pad_together(inputs)
    images = images.to(device)
    if (sizes != torch.tensor(spec.shape[1:])).any():
        boxes = torch.cat([torch.zeros_like(sizes), sizes], dim=1)
        unflipped = torch.zeros(len(boxes), dtype=torch.bool)
        images = crop_and_resize(images, boxes.to(device), _size(spec), unflipped.to(device))
    return normalise(images, spec)


def prepare_augmented(inputs: Sequence[Tensor] | Tensor, spec: InputSpec, device: torch.device, *, seed: int) -> Tensor:
    """Augment raw images and normalise them; the same seed gives the same images."""
    images, sizes = pad_together(inputs)
    parameters = draw_parameters(sizes, generator("augment", seed))
    return normalise(augment(images.to(device), parameters, _size(spec)), spec)


def normalise(images: Tensor, spec: InputSpec) -> Tensor:
    """Turn images [B, channels, H, W] of values from 0 to 255 into normalised floats."""
    mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (spec.mean, spec.std))
    return (images.float() / 255 - mean) / std


def _size(spec: InputSpec) -> tuple[int, int]:
    _, height, width = spec.shape
    return height, width
