"""The augmentation of DomainBed and the paper for a whole batch, each image with its own random parameters.

RandomResizedCrop(scale 0.7 to 1), horizontal flip, ColorJitter(0.3, 0.3, 0.3, 0.3) in random order, and
RandomGrayscale(0.1). Given the same parameters the images are torchvision's to within 1/255, and the parameters have
torchvision's distribution. Values stay whole numbers from 0 to 255 between the steps, as they do there.
Legend: B images of three channels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from messi.data.resample import crop_and_resize

SCALE, RATIO, JITTER, GRAY = (0.7, 1.0), (3 / 4, 4 / 3), 0.3, 0.1
_ATTEMPTS = 10


@dataclass(frozen=True)
class Parameters:
    """What is done to each image."""

    boxes: Tensor
    """[B, 4] top, left, height, width of the crop."""
    flip: Tensor
    """[B] True where the image is mirrored."""
    factors: Tensor
    """[B, 4] brightness, contrast, saturation, hue."""
    order: Tensor
    """[B, 4] in which order these four are changed."""
    gray: Tensor
    """[B] True where the colours are taken away."""


def draw_parameters(sizes: Tensor, stream: torch.Generator) -> Parameters:
    """Draw the parameters for images of the given sizes [B, 2]."""
    batch = len(sizes)
    factors = 1 + JITTER * (2 * torch.rand(batch, 4, generator=stream) - 1)
    factors[:, 3] -= 1  # the hue is moved, not multiplied
    return Parameters(
        boxes=draw_boxes(sizes, stream),
        flip=torch.rand(batch, generator=stream) < 0.5,
        factors=factors,
        order=torch.rand(batch, 4, generator=stream).argsort(1),
        gray=torch.rand(batch, generator=stream) < GRAY,
    )


def draw_boxes(sizes: Tensor, stream: torch.Generator) -> Tensor:
    """Draw a crop for each size [B, 2]: the first of ten tries that fits, or else the largest in the middle."""
    size = sizes[:, None].double()
    tries = torch.rand(len(sizes), _ATTEMPTS, 4, generator=stream, dtype=torch.float64)
    area = size.prod(-1) * (SCALE[0] + (SCALE[1] - SCALE[0]) * tries[..., 0])
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = torch.exp(low + (high - low) * tries[..., 1])
    extent = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()], -1).round()
    room = size - extent + 1
    corner = (room * tries[..., 2:]).floor()
    fits = ((extent > 0) & (room > 0)).all(-1)
    first = fits.int().argmax(1)[:, None, None].expand(-1, 1, 4)
    boxes = torch.cat([corner, extent], -1).gather(1, first).squeeze(1)
    return torch.where(fits.any(1, keepdim=True), boxes, _largest_in_the_middle(sizes.double()))


def _largest_in_the_middle(sizes: Tensor) -> Tensor:
    height, width = sizes.unbind(-1)
    extent = torch.stack(
        [torch.minimum(height, (width / RATIO[0]).round()), torch.minimum(width, (height * RATIO[1]).round())], -1
    )
    return torch.cat([((sizes - extent) / 2).floor(), extent], -1)


def augment(images: Tensor, parameters: Parameters, size: tuple[int, int]) -> Tensor:
    """Return augmented images as whole numbers in float32: uint8 [B, 3, H, W] -> [B, 3, *size]."""
    device = images.device
    result = crop_and_resize(images, parameters.boxes.to(device), size, parameters.flip.to(device))
    changes = (brightness, contrast, saturation, hue)
    for turn in range(4):
        for number, change in enumerate(changes):
            chosen = (parameters.order[:, turn] == number).nonzero().squeeze(1)
            _change(result, chosen, change, parameters.factors[chosen, number].to(device))
    gray = parameters.gray.nonzero().squeeze(1).to(device)
    result[gray] = luminance(result[gray]).expand(-1, 3, -1, -1)
    return result


def _change(images: Tensor, chosen: Tensor, change: Callable[[Tensor, Tensor], Tensor], factors: Tensor) -> None:
    """Apply one change to the chosen images of a batch, in place."""
    chosen = chosen.to(images.device)
    images[chosen] = change(images[chosen], factors.view(-1, 1, 1, 1))


def luminance(images: Tensor) -> Tensor:
    """Return the brightness that the eye sees, in whole numbers: [B, 3, H, W] -> [B, 1, H, W]."""
    gray: Tensor = 0.2989 * images[:, 0:1] + 0.587 * images[:, 1:2] + 0.114 * images[:, 2:3]
    return gray.floor_()


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply."""
    return _whole(images * factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Move away from, or towards, the image's mean luminance."""
    mean = luminance(images).mean((1, 2, 3), keepdim=True)
    return _whole(images * factor + mean * (1 - factor))


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Move away from, or towards, each pixel's luminance."""
    return _whole(images * factor + luminance(images) * (1 - factor))


def hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the colour circle by a share of itself, at the same saturation and value."""
    red, green, blue = (images / 255).split(1, dim=1)
    value, low = torch.maximum(torch.maximum(red, green), blue), torch.minimum(torch.minimum(red, green), blue)
    chroma = value - low
    divisor = torch.where(chroma > 0, chroma, 1)
    sector = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    turned = sector + 6 * shift
    offsets = torch.tensor([5.0, 3.0, 1.0], device=images.device).view(1, 3, 1, 1)
    place = (turned + offsets).remainder(6)
    shade = torch.minimum(place, 4 - place).clamp_(0, 1)
    return ((value - chroma * shade) * 255.999).floor_().clamp_(0, 255)


def _whole(values: Tensor) -> Tensor:
    return values.clamp_(0, 255).floor_()
