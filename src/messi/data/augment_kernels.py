"""``augment`` and ``preprocess`` on an NVIDIA GPU: crop, resize, flip, recolour and normalise packed images.

torch alone needs a hundred passes over the batch for this, and torchvision a hundred kernel launches per image; here
three kernels read, change and write each pixel. Every CUDA build of torch includes Triton.
Legend: B images of C channels, resized to S x T.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from messi.core.batch import InputSpec
from messi.data.augment import Parameters
from messi.data.images import Images

_BLOCK = 512


def resize(images: Images, boxes: Tensor, flip: Tensor, spec: InputSpec) -> Tensor:
    """Return the boxes [B, 4] of images at the size of ``spec``, normalised: [B, C, S, T]."""
    result = torch.empty(len(images), *spec.shape, device=boxes.device)
    with torch.cuda.device_of(boxes):  # Triton launches on the current device, even if the tensors are on another
        _launch_resize(images, boxes, flip, spec, result)
    return result


def augment(images: Images, parameters: Parameters, spec: InputSpec) -> Tensor:
    """Return augmented and normalised images of three channels: [B, 3, S, T]."""
    device = parameters.boxes.device
    resized = torch.empty(len(images), *spec.shape, dtype=torch.uint8, device=device)
    sums = torch.zeros(len(images), dtype=torch.int32, device=device)
    result = torch.empty(resized.shape, device=device)
    area = spec.shape[1] * spec.shape[2]
    grid = (triton.cdiv(area, _BLOCK), len(images))
    changes = (parameters.factors, parameters.order)
    with torch.cuda.device_of(resized):
        _launch_resize(images, parameters.boxes, parameters.flip, spec, resized)
        _sum_luminance[grid](resized, *changes, sums, area, BLOCK=_BLOCK)
        _recolour[grid](resized, *changes, parameters.gray, sums, result, *spec.mean, *spec.std, area, BLOCK=_BLOCK)
    return result


def _launch_resize(images: Images, boxes: Tensor, flip: Tensor, spec: InputSpec, result: Tensor) -> None:
    channels, height, width = spec.shape
    _resize[(triton.cdiv(height * width, _BLOCK), len(images))](
        images.pixels,
        images.offsets,
        images.sizes,
        boxes,
        flip,
        result,
        *(*spec.mean, 0.0, 0.0)[:3],
        *(*spec.std, 1.0, 1.0)[:3],
        height,
        width,
        CHANNELS=channels,
        NORMALISE=result.dtype == torch.float32,
        BLOCK=_BLOCK,
    )


@triton.jit
def _resize(
    pixels, offsets, sizes, boxes, flip, result, mean0, mean1, mean2, std0, std1, std2, height, width,
    CHANNELS: tl.constexpr, NORMALISE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Resize an image by an antialiased bilinear filter: a triangle two output pixels wide."""
    image = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < height * width
    row, column = tl.minimum(place // width, height - 1), place % width
    column = tl.where(tl.load(flip + image), width - 1 - column, column)
    top, left = tl.load(boxes + 4 * image), tl.load(boxes + 4 * image + 1)
    box_height, box_width = tl.load(boxes + 4 * image + 2), tl.load(boxes + 4 * image + 3)
    line = tl.load(sizes + 2 * image + 1).to(tl.int32)
    start = pixels + tl.load(offsets + image) + (top * line + left) * CHANNELS

    scale_y, scale_x = box_height.to(tl.float32) / height, box_width.to(tl.float32) / width
    reach_y, reach_x = tl.maximum(scale_y, 1.0), tl.maximum(scale_x, 1.0)
    slope_y, slope_x = 1 / reach_y, 1 / reach_x
    centre_y, centre_x = (row + 0.5) * scale_y, (column + 0.5) * scale_x
    first_y = tl.maximum((centre_y - reach_y + 0.5).to(tl.int32), 0)
    first_x = tl.maximum((centre_x - reach_x + 0.5).to(tl.int32), 0)
    sum0 = tl.zeros([BLOCK], tl.float32)
    sum1 = tl.zeros([BLOCK], tl.float32)
    sum2 = tl.zeros([BLOCK], tl.float32)
    weights = tl.zeros([BLOCK], tl.float32)
    for i in range(tl.ceil(2 * reach_y).to(tl.int32)):
        y = first_y + i
        weight_y = tl.where(y < box_height, tl.maximum(1 - tl.abs(y + 0.5 - centre_y) * slope_y, 0.0), 0.0)
        for j in range(tl.ceil(2 * reach_x).to(tl.int32)):
            x = first_x + j
            weight_x = tl.where(x < box_width, tl.maximum(1 - tl.abs(x + 0.5 - centre_x) * slope_x, 0.0), 0.0)
            weight = weight_y * weight_x
            counts = inside & (weight > 0)
            source = start + (y * line + x) * CHANNELS
            weights += weight
            sum0 += weight * tl.load(source, mask=counts, other=0).to(tl.float32)
            if CHANNELS > 1:
                sum1 += weight * tl.load(source + 1, mask=counts, other=0).to(tl.float32)
            if CHANNELS > 2:
                sum2 += weight * tl.load(source + 2, mask=counts, other=0).to(tl.float32)
    target = result + image * CHANNELS * height * width + place
    _store(target, sum0 / weights, mean0, std0, inside, NORMALISE)
    if CHANNELS > 1:
        _store(target + height * width, sum1 / weights, mean1, std1, inside, NORMALISE)
    if CHANNELS > 2:
        _store(target + 2 * height * width, sum2 / weights, mean2, std2, inside, NORMALISE)


@triton.jit
def _store(target, value, mean, std, inside, NORMALISE: tl.constexpr):
    value = tl.floor(value + 0.5)
    if NORMALISE:
        value = (value / 255 - mean) / std
    tl.store(target, value, mask=inside)


@triton.jit
def _sum_luminance(resized, factors, order, sums, area, BLOCK: tl.constexpr):
    """Sum the luminance of each image just before its contrast changes; a sum of integers is the same in any order."""
    image = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < area
    red, green, blue = _load(resized, image, place, inside, area)
    before = image >= 0
    for turn in tl.static_range(4):
        change = tl.load(order + 4 * image + turn)
        before = before & (change != 1)
        if before:
            factor = tl.load(factors + 4 * image + change)
            red, green, blue = _change(red, green, blue, change, factor, 0.0)
    sum_of_block = tl.sum(tl.where(inside, _luminance(red, green, blue), 0.0).to(tl.int32), 0)
    tl.atomic_add(sums + image, sum_of_block)


@triton.jit
def _recolour(
    resized, factors, order, gray, sums, result, mean0, mean1, mean2, std0, std1, std2, area, BLOCK: tl.constexpr
):  # fmt: skip
    """Change the colours of each image in its own order, and normalise it."""
    image = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < area
    red, green, blue = _load(resized, image, place, inside, area)
    mean = tl.load(sums + image).to(tl.float32) / area
    for turn in tl.static_range(4):
        change = tl.load(order + 4 * image + turn)
        factor = tl.load(factors + 4 * image + change)
        red, green, blue = _change(red, green, blue, change, factor, mean)
    if tl.load(gray + image):
        red = _luminance(red, green, blue)
        green = red
        blue = red
    first = result + 3 * image * area + place
    tl.store(first, (red / 255 - mean0) / std0, mask=inside)
    tl.store(first + area, (green / 255 - mean1) / std1, mask=inside)
    tl.store(first + 2 * area, (blue / 255 - mean2) / std2, mask=inside)


@triton.jit
def _load(resized, image, place, inside, area):
    first = resized + 3 * image * area + place
    red = tl.load(first, mask=inside, other=0).to(tl.float32)
    green = tl.load(first + area, mask=inside, other=0).to(tl.float32)
    blue = tl.load(first + 2 * area, mask=inside, other=0).to(tl.float32)
    return red, green, blue


@triton.jit
def _change(red, green, blue, change, factor, mean):
    """Apply brightness (0), contrast (1), saturation (2) or hue (3)."""
    if change == 3:
        red, green, blue = _turn(red, green, blue, factor)
    else:
        towards = tl.zeros_like(red)
        if change == 1:
            towards += mean
        if change == 2:
            towards += _luminance(red, green, blue)
        towards *= 1 - factor
        red, green, blue = (
            _whole(red * factor + towards),
            _whole(green * factor + towards),
            _whole(blue * factor + towards),
        )
    return red, green, blue


@triton.jit
def _turn(red, green, blue, shift):
    value, low = tl.maximum(tl.maximum(red, green), blue), tl.minimum(tl.minimum(red, green), blue)
    chroma = value - low
    safe = tl.maximum(chroma, 1.0)
    others = tl.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe)
    sector = tl.where(value == red, (green - blue) / safe, others) + 6 * shift
    return (
        _shade(value, chroma, sector + 3),
        _shade(value, chroma, sector + 1),
        _shade(value, chroma, sector - 1),
    )


@triton.jit
def _shade(value, chroma, distance):
    distance = tl.abs(distance - 6 * tl.floor(distance / 6 + 0.5))
    shade = tl.minimum(tl.maximum(2 - distance, 0.0), 1.0)
    return tl.floor((value - shade * chroma) * (255.999 / 255))


@triton.jit
def _luminance(red, green, blue):
    return tl.floor(0.2989 * red + 0.587 * green + 0.114 * blue)


@triton.jit
def _whole(value):
    return tl.floor(tl.minimum(tl.maximum(value, 0.0), 255.0))
