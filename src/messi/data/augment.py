"""The augmentation of DomainBed and the paper for a whole batch, each image with its own random parameters.

RandomResizedCrop(scale 0.7 to 1), horizontal flip, ColorJitter(0.3, 0.3, 0.3, 0.3) in random order, and
RandomGrayscale(0.1). With the same parameters the images equal torchvision's to within 1/255, and the parameters have
torchvision's distribution. Values are whole numbers from 0 to 255 after every step, as in torchvision; some shortcuts
below hold for whole numbers only.

This file draws the parameters and contains the CPU code, which is the reference. ``augment_kernels`` does the same on
an NVIDIA GPU.
Legend: B images of three channels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from messi.core.batch import InputSpec
from messi.core.config import OPEN, Config
from messi.data.images import Images
from messi.data.preprocess import resize

SCALE, RATIO, JITTER, GRAY = (0.7, 1.0), (3 / 4, 4 / 3), 0.3, 0.1
_ATTEMPTS = 10
_RED, _GREEN, _BLUE = 0.2989, 0.587, 0.114
Augmentation = Literal["domainbed", "none"]


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig(Config):
    """Which images are augmented, and how."""

    augmentation: Augmentation = OPEN
    """Augmentation of the training images; by default the one that suits the data set."""
    validation_augmentation: bool = OPEN
    """Augment the source validation images as well, as DomainBed does."""


NO_AUGMENTATION = AugmentationConfig(augmentation="none", validation_augmentation=False)


@dataclass(frozen=True)
class Parameters:
    """The random parameters of each image."""

    boxes: Tensor
    """[B, 4] top, left, height, width of the crop, in pixels."""
    flip: Tensor
    """[B] True where the image is mirrored."""
    factors: Tensor
    """[B, 4] brightness, contrast, saturation, hue."""
    order: Tensor
    """[B, 4] the order in which these four are changed."""
    gray: Tensor
    """[B] True where the image becomes grey."""

    def __getitem__(self, rows: slice) -> "Parameters":
        return self.map(lambda values: values[rows])

    def map(self, change: Callable[[Tensor], Tensor]) -> "Parameters":
        """Return the parameters with every tensor changed, such as moved to a device."""
        return Parameters(**{name: change(values) for name, values in vars(self).items()})


def draw_parameters(sizes: Tensor, random: torch.Generator) -> Parameters:
    """Draw the parameters for images of the given sizes [B, 2]."""
    batch = len(sizes)
    factors = 1 + JITTER * (2 * torch.rand(batch, 4, generator=random) - 1)
    factors[:, 3] -= 1  # the hue is shifted, not multiplied
    return Parameters(
        boxes=draw_boxes(sizes, random),
        flip=torch.rand(batch, generator=random) < 0.5,
        factors=factors,
        order=torch.rand(batch, 4, generator=random).argsort(1),
        gray=torch.rand(batch, generator=random) < GRAY,
    )


def draw_boxes(sizes: Tensor, random: torch.Generator) -> Tensor:
    """Draw a crop for each size [B, 2]: the first of ten attempts that fits, or else the largest central one."""
    size = sizes[:, None].double()
    tries = torch.rand(len(sizes), _ATTEMPTS, 4, generator=random, dtype=torch.float64)
    area = size.prod(-1) * (SCALE[0] + (SCALE[1] - SCALE[0]) * tries[..., 0])
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = torch.exp(low + (high - low) * tries[..., 1])
    extent = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()], -1).round()
    positions = size - extent + 1
    corner = (positions * tries[..., 2:]).floor()
    fits = ((extent > 0) & (positions > 0)).all(-1)
    first = fits.int().argmax(1)[:, None, None].expand(-1, 1, 4)
    boxes = torch.cat([corner, extent], -1).gather(1, first).squeeze(1)
    return torch.where(fits.any(1, keepdim=True), boxes, _largest_centred(sizes.double())).int()


def _largest_centred(sizes: Tensor) -> Tensor:
    height, width = sizes.unbind(-1)
    extent = torch.stack(
        [torch.minimum(height, (width / RATIO[0]).round()), torch.minimum(width, (height * RATIO[1]).round())], -1
    )
    return torch.cat([((sizes - extent) / 2).floor(), extent], -1)


def prepare_augmented(images: Images, parameters: Parameters, spec: InputSpec) -> Tensor:
    """Augment and normalise images of three channels on the device of the parameters: [B, 3, height, width]."""
    if parameters.boxes.device.type == "cpu":
        return augment(images, parameters, spec)
    from messi.data import augment_kernels  # noqa: PLC0415 (requires Triton, which only CUDA builds of torch include)

    return augment_kernels.augment(images, parameters, spec)


def augment(images: Images, parameters: Parameters, spec: InputSpec) -> Tensor:
    """Augment and normalise images of three channels on a CPU: [B, 3, height, width]."""
    changes = (brightness, contrast, saturation, hue)
    gray, orders = parameters.gray.tolist(), parameters.order.tolist()
    factors: list[list[float]] = parameters.factors.tolist()

    def one(index: int, image: Tensor) -> Tensor:
        for number in orders[index]:
            image = changes[number](image, factors[index][number])
        return luminance(image).expand(3, -1, -1) if gray[index] else image

    return resize(images, parameters.boxes, parameters.flip, spec, one)


def luminance(image: Tensor) -> Tensor:
    """Return the perceived brightness in whole numbers: [3, H, W] -> [H, W]."""
    red, green, blue = image
    gray: Tensor = red * _RED
    return gray.add_(green, alpha=_GREEN).add_(blue, alpha=_BLUE).floor_()


def brightness(image: Tensor, factor: float) -> Tensor:
    """Multiply all values by a factor."""
    return _whole(image * factor)


def contrast(image: Tensor, factor: float) -> Tensor:
    """Move values away from, or towards, the image's mean luminance."""
    return _whole((image * factor).add_(luminance(image).mean() * (1 - factor)))


def saturation(image: Tensor, factor: float) -> Tensor:
    """Move values away from, or towards, each pixel's luminance."""
    return _whole((image * factor).add_(luminance(image).mul_(1 - factor)))


def hue(image: Tensor, shift: float) -> Tensor:
    """Rotate the colour circle by a fraction of a turn, at the same saturation and value.

    A colour is at ``sector`` (0 to 6) of the circle, and the shade of a channel is its distance from the position of
    that channel. The difference of whole numbers, clamped to 0 and 1, is ten times faster than a comparison.
    """
    red, green, blue = image
    value, low = torch.maximum(torch.maximum(red, green), blue), torch.minimum(torch.minimum(red, green), blue)
    chroma = value - low
    near_green, near_blue = (blue - red).add_(chroma, alpha=2), (red - green).add_(chroma, alpha=4)
    sector = torch.lerp(near_green, near_blue, (value - green).clamp_(0, 1))
    sector = torch.lerp(green - blue, sector, (value - red).clamp_(0, 1)).div_(chroma.clamp_min(1))
    places = torch.tensor([3.0, 1.0, -1.0]).add_(6 * shift).view(3, 1, 1)
    distance = sector + places
    distance.sub_((distance / 6).round_(), alpha=6).abs_()
    shade = distance.neg_().add_(2).clamp_(0, 1)
    return torch.addcmul(value, shade, chroma, value=-1).mul_(255.999 / 255).floor_()


def _whole(values: Tensor) -> Tensor:
    return values.clamp_(0, 255).floor_()
