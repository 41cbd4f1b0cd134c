"""``small_cnn`` and ``tiny_cnn`` on a GPU: ReLU and GroupNorm in one pass, feature maps in autocast's precision.

On a CPU in bfloat16, torch's own layers run, each in the order of memory that is faster for it.
"""

import torch
from torch import Tensor, nn

from messi.core import gpu_kernels
from messi.models.small import SmallConvNet


def fuse(network: nn.Module) -> None:
    """Replace the network and its norms."""
    if type(network) is SmallConvNet:
        network.__class__ = _FusedConvNet
        for layer in network:
            if type(layer) is nn.GroupNorm:
                layer.__class__ = _FusedNorm


class _FusedNorm(nn.GroupNorm):
    """GroupNorm of maps [B, C, H, W]; the kernels include the ReLU before it, which may then be skipped."""

    def forward(self, maps: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Normalise maps; the kernels return ``dtype``, by default that of the maps."""
        if not gpu_kernels.run_under_autocast(maps):
            return super().forward(maps)
        from messi.models.fused import group_norm_kernels as kernels  # noqa: PLC0415 (only CUDA builds have Triton)

        return kernels.relu_group_norm(
            maps, self.weight, self.bias, groups=self.num_groups, epsilon=self.eps, dtype=dtype or maps.dtype
        )


class _FusedConvNet(SmallConvNet):
    """The kernels keep maps in autocast's precision and channels last until the final mean."""

    def forward(self, images: Tensor) -> Tensor:
        """Encode images [B, channels, H, W] as features [B, C]."""
        if not gpu_kernels.run_under_autocast(images):
            on_cpu = images.device.type == "cpu" and torch.is_autocast_enabled("cpu")
            return self._change_order(images) if on_cpu and not torch.compiler.is_compiling() else self._plain(images)
        maps: Tensor = images.to(torch.get_autocast_dtype("cuda"), memory_format=torch.channels_last)
        *inner, last = (layer for layer in self if isinstance(layer, nn.Conv2d | nn.GroupNorm))
        for layer in inner:
            maps = layer(maps)
        maps = last(maps, torch.float32)  # the means are close to zero, where the rounding of bfloat16 would matter
        return maps.sum((2, 3)) / (maps.shape[2] * maps.shape[3])

    def _plain(self, images: Tensor) -> Tensor:
        features: Tensor = super().forward(images)  # type: ignore[no-untyped-call]  # torch's own has no types
        return features

    def _change_order(self, images: Tensor) -> Tensor:
        """Encode images on a CPU in bfloat16: channels first up to the last narrow norm, channels last after it.

        Convolutions, above all the gradient of one with a stride, are faster with channels last, but torch normalises
        narrow groups ten times slower with them.
        """
        last_narrow = max((place for place, layer in enumerate(self) if _is_narrow(layer)), default=-1)
        maps = images
        for place, layer in enumerate(self):
            if place > last_narrow and isinstance(layer, nn.Conv2d):
                maps = maps.contiguous(memory_format=torch.channels_last)
            maps = layer(maps)
        return maps


def _is_narrow(layer: nn.Module) -> bool:
    return isinstance(layer, nn.GroupNorm) and layer.num_channels // layer.num_groups < 16
