"""``small_cnn`` and ``tiny_cnn`` on a GPU: ReLU and GroupNorm in one pass, feature maps in autocast's precision."""

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
            features: Tensor = super().forward(images)  # type: ignore[no-untyped-call]  # torch's own has no types
            return features
        maps: Tensor = images.to(torch.get_autocast_dtype("cuda"), memory_format=torch.channels_last)
        *inner, last = (layer for layer in self if isinstance(layer, nn.Conv2d | nn.GroupNorm))
        for layer in inner:
            maps = layer(maps)
        maps = last(maps, torch.float32)  # the means are close to zero, where the rounding of bfloat16 would matter
        return maps.sum((2, 3)) / (maps.shape[2] * maps.shape[3])
