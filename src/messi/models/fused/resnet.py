"""timm's ResNets on a GPU: same weights, same function, less time.

Between two convolutions are a BatchNorm, a ReLU and, at the end of a block, the sum with the shortcut. torch makes at
least one pass over memory for each of them; ``batch_norm_kernels`` makes one pass for all. In training it makes one
more, for the statistics of the batch, unless BatchNorm is frozen. ``pool_kernels`` pools after the first layer.
"""

from typing import Any

from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import Tensor, nn

from messi.core import gpu_kernels

_PARTS = {"conv": nn.Conv2d, "bn": nn.BatchNorm2d, "act": nn.ReLU, "drop_block": nn.Identity, "aa": nn.Identity}
"""The parts of a block apart from its shortcut; their names end in a number."""


def fuse(network: nn.Module) -> None:
    """Replace a ResNet and those of its blocks that the kernels fully support."""
    if type(network) is not ResNet:
        return
    for block in network.modules():
        if type(block) in _FUSED and _is_plain_block(block):
            block.__class__ = _FUSED[type(block)]
    if type(network.act1) is nn.ReLU and _is_plain_norm(network.bn1):
        network.__class__ = _FusedResNet


def _is_plain_block(block: Any) -> bool:
    """Return whether a block is convolutions, BatchNorm and ReLU, and the layers of its shortcut end in BatchNorm."""
    parts = dict(block.named_children())
    path = parts.pop("downsample", None)
    norms = [part for name, part in parts.items() if name.startswith("bn")]
    if path is not None:
        norms.append(path[-1] if type(path) is nn.Sequential else None)
    return all(map(_is_plain_norm, norms)) and all(
        type(part) is _PARTS.get(name.rstrip("123")) for name, part in parts.items()
    )


def _is_plain_norm(norm: Any) -> bool:
    return type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats


class _FusedBasicBlock(BasicBlock):
    def forward(self, x: Tensor) -> Tensor:
        if not gpu_kernels.run_under_autocast(x):
            return super().forward(x)
        maps = _norm(self.conv1(x), self.bn1)
        return _norm(self.conv2(maps), self.bn2, shortcut=_shortcut(self, x))


class _FusedBottleneck(Bottleneck):
    def forward(self, x: Tensor) -> Tensor:
        if not gpu_kernels.run_under_autocast(x):
            return super().forward(x)
        maps = _norm(self.conv1(x), self.bn1)
        maps = _norm(self.conv2(maps), self.bn2)
        return _norm(self.conv3(maps), self.bn3, shortcut=_shortcut(self, x))


class _FusedResNet(ResNet):
    def forward_features(self, x: Tensor) -> Tensor:
        if self.grad_checkpointing or not gpu_kernels.run_under_autocast(x):
            return super().forward_features(x)
        maps = _pool(_norm(self.conv1(x), self.bn1), self.maxpool)
        for name in ("layer1", "layer2", "layer3", "layer4"):
            maps = self.get_submodule(name)(maps)
        return maps


_POOL = nn.MaxPool2d(kernel_size=3, stride=2, padding=1).extra_repr()
_FUSED = {BasicBlock: _FusedBasicBlock, Bottleneck: _FusedBottleneck}


def _shortcut(block: Any, x: Tensor) -> Tensor:
    """Return what is added at the end of a block: its input, or the output of the downsampling path."""
    if block.downsample is None:
        return x
    *layers, norm = block.downsample
    for layer in layers:
        x = layer(x)
    return _norm(x, norm, relu=False)


def _pool(maps: Tensor, pool: Any) -> Tensor:
    from messi.models.fused import pool_kernels as kernels  # noqa: PLC0415 (only CUDA builds have Triton)

    if type(pool) is nn.MaxPool2d and pool.extra_repr() == _POOL:
        return kernels.max_pool(maps)
    pooled: Tensor = pool(maps)
    return pooled


def _norm(maps: Tensor, norm: Any, *, shortcut: Tensor | None = None, relu: bool = True) -> Tensor:
    from messi.models.fused import batch_norm_kernels as kernels  # noqa: PLC0415 (only CUDA builds have Triton)

    if norm.training:
        return kernels.batch_norm(maps, norm, shortcut=shortcut, relu=relu)
    return kernels.frozen_norm(
        maps, norm.weight, norm.bias, norm.running_mean, norm.running_var,
        epsilon=norm.eps, shortcut=shortcut, relu=relu,
    )  # fmt: skip
