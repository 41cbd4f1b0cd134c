"""ReLU and GroupNorm of feature maps in one pass over memory, forward and backward.

Under autocast, torch's GroupNorm computes in float32 and channels first, so every convolution is surrounded by
conversions that take longer than the convolution. Here maps keep the precision and the channels-last order of the
convolutions; only statistics and sums are float32. All sums have a fixed order, so the same input gives the same bits.
Legend: B images, C channels in G groups, H x W positions.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.models.fused.vit_kernels import sum_parts

_TILE = 8192
"""Maximum numbers of a group that a program processes at once; it reads a larger group again."""


def relu_group_norm(
    maps: Tensor, weight: Tensor, bias: Tensor, *, groups: int, epsilon: float, dtype: torch.dtype
) -> Tensor:
    """Return ``group_norm(relu(maps))``, [B, C, H, W], in the given precision and channels last.

    The number of channels in a group must be a power of two.
    """
    result: Tensor = _ReluGroupNorm.apply(maps, weight, bias, groups, epsilon, dtype)
    return result


class _ReluGroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, groups: int, epsilon: float, dtype: torch.dtype
    ) -> Tensor:
        maps = maps.contiguous(memory_format=torch.channels_last)
        result, programs = torch.empty_like(maps, dtype=dtype), len(maps) * groups
        statistics = torch.empty(2, programs, device=maps.device)
        with torch.cuda.device_of(maps):
            _forward[(programs,)](maps, weight, bias, result, statistics, epsilon, **_shape(maps, groups))
        ctx.save_for_backward(maps, weight, statistics)
        ctx.groups = groups
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, statistics = ctx.saved_tensors
        above = above.flatten(2)  # in any order: the gradient of a mean is one number for all positions
        grad, parts = torch.empty_like(maps), torch.empty(2, *maps.shape[:2], device=maps.device)
        with torch.cuda.device_of(maps):
            _backward[(len(maps) * ctx.groups,)](
                above, *above.stride(), maps, weight, statistics, grad, parts, **_shape(maps, ctx.groups)
            )  # fmt: skip
        weight_grad, bias_grad = sum_parts(parts)
        return grad, weight_grad, bias_grad, None, None, None


def _shape(maps: Tensor, groups: int) -> dict[str, int]:
    """Return the compile-time constants of the kernels for these maps."""
    width, places = maps.shape[1] // groups, maps.shape[2] * maps.shape[3]
    tile = min(triton.next_power_of_2(places), _TILE // width)
    warps = min(max(tile * width // 1024, 1), 8)
    return {"GROUPS": groups, "WIDTH": width, "PLACES": places, "TILE": tile, "num_warps": warps}


@triton.jit
def _forward(
    maps, weight, bias, result, statistics, epsilon,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Normalise one group of one image, and store its mean and 1 / deviation."""
    channels: tl.constexpr = GROUPS * WIDTH
    image, channel = _which(GROUPS, WIDTH)
    maps += image * (PLACES * channels) + channel
    result += image * (PLACES * channels) + channel
    total = tl.zeros([TILE, WIDTH], tl.float32)
    for start in range(0, PLACES, TILE):
        place, inside = _places(start, PLACES, TILE, WIDTH)
        total += _positive(_read(maps + place * channels, inside))
    mean = _sum(total) / (PLACES * WIDTH)
    squares = tl.zeros([TILE, WIDTH], tl.float32)
    for start in range(0, PLACES, TILE):
        place, inside = _places(start, PLACES, TILE, WIDTH)
        value = _positive(_read(maps + place * channels, inside))
        centred = tl.where(inside, value - mean, 0.0)
        squares += centred * centred
    scale = 1 / tl.sqrt(_sum(squares) / (PLACES * WIDTH) + epsilon)
    factor, offset = tl.load(weight + channel), tl.load(bias + channel)
    for start in range(0, PLACES, TILE):
        place, inside = _places(start, PLACES, TILE, WIDTH)
        unit = (_positive(_read(maps + place * channels, inside)) - mean) * scale
        tl.store(result + place * channels, unit * factor + offset, mask=inside)
    tl.store(statistics + tl.program_id(0), mean)
    tl.store(statistics + tl.num_programs(0) + tl.program_id(0), scale)


@triton.jit
def _backward(
    above, image_step, channel_step, place_step, maps, weight, statistics, grad, parts,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of one group of one image, and the image's part of the gradients of weight and bias."""
    channels: tl.constexpr = GROUPS * WIDTH
    image, channel = _which(GROUPS, WIDTH)
    maps += image * (PLACES * channels) + channel
    grad += image * (PLACES * channels) + channel
    above += image * image_step + channel * channel_step
    mean = tl.load(statistics + tl.program_id(0))
    scale = tl.load(statistics + tl.num_programs(0) + tl.program_id(0))
    weight_sum = tl.zeros([TILE, WIDTH], tl.float32)
    bias_sum = tl.zeros([TILE, WIDTH], tl.float32)
    for start in range(0, PLACES, TILE):
        place, inside = _places(start, PLACES, TILE, WIDTH)
        value = _read(maps + place * channels, inside)
        given = _read(above + place * place_step, inside)  # zero outside
        weight_sum += given * ((_positive(value) - mean) * scale)
        bias_sum += given
    weight_grad, bias_grad = tl.sum(weight_sum, 0), tl.sum(bias_sum, 0)
    factor = tl.load(weight + channel)
    along = tl.sum(weight_grad * factor, 0) / (PLACES * WIDTH)
    level = tl.sum(bias_grad * factor, 0) / (PLACES * WIDTH)
    for start in range(0, PLACES, TILE):
        place, inside = _places(start, PLACES, TILE, WIDTH)
        value = _read(maps + place * channels, inside)
        unit = (_positive(value) - mean) * scale
        below = (_read(above + place * place_step, inside) * factor - level - unit * along) * scale
        tl.store(grad + place * channels, tl.where(value <= 0, 0.0, below), mask=inside)
    parts += image * channels + channel  # stored last: between two equal loads, both would be executed
    tl.store(parts, weight_grad)
    tl.store(parts + tl.num_programs(0) * WIDTH, bias_grad)


@triton.jit
def _which(GROUPS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the image of a program, and the channels of its group, [WIDTH]."""
    image = (tl.program_id(0) // GROUPS).to(tl.int64)
    return image, tl.program_id(0) % GROUPS * WIDTH + tl.arange(0, WIDTH)


@triton.jit
def _places(start, PLACES: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr):
    """Return positions [TILE, 1], and which of their numbers exist, [TILE, WIDTH]."""
    place = (start + tl.arange(0, TILE))[:, None]
    return place, (place < PLACES).broadcast_to(TILE, WIDTH)


@triton.jit
def _read(source, inside):
    return tl.load(source, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _positive(value):
    """Return ReLU as in torch: NaN stays NaN, which a maximum would hide."""
    return tl.where(value < 0, 0.0, value)


@triton.jit
def _sum(matrix):
    return tl.sum(tl.sum(matrix, 1), 0)
