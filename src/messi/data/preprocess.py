"""From raw inputs to what an encoder takes, on the device that it runs on."""

import torch
from torch import Tensor

from messi.core.batch import InputSpec
from messi.data import augment
from messi.data.images import Images


def prepare(inputs: Images | Tensor, spec: InputSpec) -> Tensor:
    """Resize raw images to the encoder's size, without a crop, and normalise them; features pass unchanged."""
    if isinstance(inputs, Tensor):
        return inputs
    device = inputs.sizes.device
    boxes = torch.cat([torch.zeros_like(inputs.sizes), inputs.sizes], dim=1).int()
    unflipped = torch.zeros(len(boxes), dtype=torch.bool, device=device)
    if device.type == "cuda":
        from messi.data import kernels  # noqa: PLC0415 (needs Triton, which only CUDA builds of torch bring)

        return kernels.resize(inputs, boxes, unflipped, spec)
    size = _size(spec)
    if (inputs.sizes == torch.tensor(size)).all():
        return normalise(inputs.stack(), spec)
    return normalise(torch.stack(list(augment.crop_and_resize(inputs, boxes, unflipped, size))), spec)


def prepare_augmented(images: Images, parameters: augment.Parameters, spec: InputSpec) -> Tensor:
    """Augment raw images and normalise them."""
    if parameters.boxes.device.type == "cuda":
        from messi.data import kernels  # noqa: PLC0415

        return kernels.augment(images, parameters, spec)
    return normalise(augment.augment(images, parameters, _size(spec)), spec)


def normalise(images: Tensor, spec: InputSpec) -> Tensor:
    """Turn images [B, channels, H, W] of values from 0 to 255 into normalised floats."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (spec.mean, spec.std))
    return images.float().div_(255).sub_(mean).div_(std)


def _size(spec: InputSpec) -> tuple[int, int]:
    _, height, width = spec.shape
    return height, width
