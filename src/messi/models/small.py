"""Encoders for inputs that are too small for a timm model.

``small_cnn`` is the network that DomainBed trains on MNIST: four 3x3 convolutions, each followed by ReLU and then
GroupNorm, and global average pooling. ``tiny_cnn`` is a narrower one for quick runs on a CPU. ``mlp`` and
``identity`` take features, or anything else that can be flattened.
"""

import math

import torch
from torch import Tensor, nn

from messi.core.errors import MessiError


def small_cnn(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return DomainBed's network for images [B, channels, H, W] of about 28 pixels, and its width 128."""
    return _cnn(input_shape, channels=(64, 128, 128, 128), strides=(1, 2, 1, 1))


def tiny_cnn(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return a network of the same kind at a twentieth of the cost, and its width 64."""
    return _cnn(input_shape, channels=(32, 64, 64), strides=(2, 2, 1))


def _cnn(input_shape: tuple[int, ...], *, channels: tuple[int, ...], strides: tuple[int, ...]) -> tuple[nn.Module, int]:
    if len(input_shape) != 3:
        raise MessiError("A convolutional backbone takes images; use 'mlp' for features.")
    layers: list[nn.Module] = []
    before = input_shape[0]
    for after, stride in zip(channels, strides, strict=True):
        layers += [nn.Conv2d(before, after, 3, stride, padding=1), nn.ReLU(), _Norm(8, after)]
        before = after
    return _Cnn(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), before


class _Norm(nn.GroupNorm):
    """GroupNorm of maps [B, C, H, W]; by kernels, with the ReLU before it in one pass, so that it may be left out."""

    def forward(self, maps: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Normalise maps; kernels answer in another precision if asked for."""
        if not _has_kernels(maps):
            return super().forward(maps)
        from messi.models import group_norm_kernels as kernels  # noqa: PLC0415 (Triton comes with CUDA builds alone)

        return kernels.relu_group_norm(
            maps, self.weight, self.bias, groups=self.num_groups, epsilon=self.eps, dtype=dtype or maps.dtype
        )


class _Cnn(nn.Sequential):
    """Layers one after the other; by kernels, maps stay in autocast's precision and channels last up to the mean."""

    def forward(self, images: Tensor) -> Tensor:
        """Encode images [B, channels, H, W] as features [B, C]."""
        if not _has_kernels(images):
            features: Tensor = super().forward(images)  # type: ignore[no-untyped-call]  # torch's own has no types
            return features
        maps: Tensor = images.to(torch.get_autocast_dtype("cuda"), memory_format=torch.channels_last)
        *inner, last = (layer for layer in self if isinstance(layer, nn.Conv2d | nn.GroupNorm))
        for layer in inner:
            maps = layer(maps)
        maps = last(maps, torch.float32)  # their means are near zero, where roundings of bfloat16 would count
        return maps.sum((2, 3)) / (maps.shape[2] * maps.shape[3])


def _has_kernels(maps: Tensor) -> bool:
    return maps.is_cuda and torch.is_autocast_enabled("cuda")


def identity(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return no network at all: the features, flattened, as they are."""
    return nn.Flatten(), math.prod(input_shape)


def mlp(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return the encoder for anything that can be flattened, and its width 32."""
    width = 32
    layers = (
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
    )
    return nn.Sequential(*layers), width
