"""From raw inputs to what an encoder takes, on the device that it runs on."""

import torch
from torch import Tensor

from messi.core.batch import InputSpec
from messi.data import augment
from messi.data.images import Images
from messi.data.resize import normalise, resize


def prepare(images: Images, spec: InputSpec) -> Tensor:
    """Resize raw images to the encoder's size, without a crop, and normalise them."""
    if images.sizes.device.type == "cpu" and (images.sizes == torch.tensor(spec.shape[1:])).all():
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (spec.mean, spec.std))
        return normalise(images.stack(), mean, std)
    boxes = torch.cat([torch.zeros_like(images.sizes), images.sizes], dim=1).int()
    unflipped = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    if boxes.device.type == "cpu":
        return resize(images, boxes, unflipped, spec)
    from messi.data import kernels  # noqa: PLC0415 (needs Triton, which only CUDA builds of torch bring)

    return kernels.resize(images, boxes, unflipped, spec)


def prepare_augmented(images: Images, parameters: augment.Parameters, spec: InputSpec) -> Tensor:
    """Augment raw images and normalise them."""
    if parameters.boxes.device.type == "cpu":
        return augment.augment(images, parameters, spec)
    from messi.data import kernels  # noqa: PLC0415

    return kernels.augment(images, parameters, spec)
