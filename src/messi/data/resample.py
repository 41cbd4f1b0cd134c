"""Crop and resize a batch, each image by its own box.

torchvision does this for one image, or for one box of many images of one size; on a GPU a batch of 96 then takes as
many launches. The products here have the weights of its antialiased bilinear filter: a triangle over the source
pixels, as wide as a target pixel is, and never narrower than a source pixel.

Legend: B images, C channels, H and W padded source size, S and T target height and width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional


def pad_together(images: Sequence[Tensor] | Tensor) -> tuple[Tensor, Tensor]:
    """Put images of any sizes into one uint8 tensor [B, C, H, W]; return it and their sizes [B, 2]."""
    sizes = torch.tensor([image.shape[1:] for image in images])
    height, width = sizes.amax(0).tolist()
    if isinstance(images, Tensor):
        return images, sizes
    padded = torch.zeros(len(images), len(images[0]), height, width, dtype=torch.uint8)
    for place, image in zip(padded, images, strict=True):
        place[:, : image.shape[1], : image.shape[2]] = image
    return padded, sizes


def crop_and_resize(images: Tensor, boxes: Tensor, size: tuple[int, int], flip: Tensor) -> Tensor:
    """Return the boxes of a batch at one size, as whole numbers in float32.

    Args:
        images: [B, C, H, W] uint8.
        boxes: [B, 4] top, left, height, width in pixels.
        size: S and T.
        flip: [B] True where the result is mirrored left to right.

    Returns:
        [B, C, S, T] values from 0 to 255.

    """
    return (one_by_one if images.device.type == "cpu" else by_products)(images, boxes, size, flip)


def one_by_one(images: Tensor, boxes: Tensor, size: tuple[int, int], flip: Tensor) -> Tensor:
    """Crop and resize each image by torchvision, whose code for uint8 is the fastest on a CPU."""
    results = []
    for image, box, mirrored in zip(images, boxes.int().tolist(), flip.tolist(), strict=True):
        resized = functional.resized_crop(image, *box, list(size), antialias=True)
        results.append(resized.flip(-1) if mirrored else resized)
    return torch.stack(results).float()


def by_products(images: Tensor, boxes: Tensor, size: tuple[int, int], flip: Tensor) -> Tensor:
    """Crop and resize all images at once, as two batched products with weight matrices; for a GPU."""
    rows = weights(boxes[:, 0], boxes[:, 2], size=size[0], length=images.shape[2])
    columns = weights(boxes[:, 1], boxes[:, 3], size=size[1], length=images.shape[3])
    columns = torch.where(flip[:, None, None], columns.flip(1), columns)
    resized = rows[:, None] @ (images.to(rows.dtype) @ columns[:, None].mT)
    return resized.round_().clamp_(0, 255)


def weights(start: Tensor, extent: Tensor, *, size: int, length: int) -> Tensor:
    """Return how much each of ``length`` source pixels counts for each of ``size`` target pixels: -> [B, size, length].

    ``start`` and ``extent`` [B] say which source pixels are resized; the others count nothing.
    """
    start, extent = start.float()[:, None, None], extent.float()[:, None, None]
    scale = extent / size
    centre = (torch.arange(size, device=start.device)[:, None] + 0.5) * scale
    pixel = torch.arange(length, device=start.device) - start
    distance = (pixel + 0.5 - centre).abs() / scale.clamp_min(1)
    triangle = (1 - distance).clamp_min_(0) * ((pixel >= 0) & (pixel < extent))
    return triangle / triangle.sum(-1, keepdim=True)
