"""Encoders for inputs that are too small for a timm model.

``small_cnn`` is the network that DomainBed trains on MNIST: four 3x3 convolutions, each followed by ReLU and then
GroupNorm, and global average pooling. ``tiny_cnn`` is a narrower one for quick runs on a CPU. ``residual_mlp``, the
default for features (docs/feature_study.md), ``mlp`` and ``identity`` take anything that can be flattened.
"""

import math

from torch import Tensor, nn
from torch.nn import functional

from messi.core.errors import MessiError
from messi.models.dropout import Dropout


class SmallConvNet(nn.Sequential):
    """Convolutions, each followed by ReLU and GroupNorm, then the mean over all positions."""


def small_cnn(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return DomainBed's network for images [B, channels, H, W] of about 28 pixels, and its width 128."""
    return _conv_net(input_shape, channels=(64, 128, 128, 128), strides=(1, 2, 1, 1))


def tiny_cnn(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return a network of the same kind at a twentieth of the cost, and its width 64."""
    return _conv_net(input_shape, channels=(32, 64, 64), strides=(2, 2, 1))


def _conv_net(
    input_shape: tuple[int, ...], *, channels: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[nn.Module, int]:
    if len(input_shape) != 3:
        raise MessiError("A convolutional backbone takes images; use 'residual_mlp' for features.")
    layers: list[nn.Module] = []
    before = input_shape[0]
    for after, stride in zip(channels, strides, strict=True):
        layers += [nn.Conv2d(before, after, 3, stride, padding=1), nn.ReLU(), nn.GroupNorm(8, after)]
        before = after
    return SmallConvNet(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), before


def identity(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return no network at all: the flattened inputs are the features."""
    return nn.Flatten(), math.prod(input_shape)


def mlp(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return an encoder for anything that can be flattened, and its width 32."""
    width = 32
    layers = (
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
    )
    return nn.Sequential(*layers), width


class ResidualMLP(nn.Module):
    """A linear layer plus a hidden layer whose contribution starts at zero, so that training begins with a linear map.

    Small data are best served by a linear model; large data may use the hidden layer. In training, inputs are dropped:
    next to none of a few, up to half of many, which a model would otherwise learn by heart.
    """

    def __init__(self, inputs: int, hidden: int, width: int) -> None:
        super().__init__()
        self.dropout = Dropout(0.5 * inputs / (inputs + 128))
        self.hidden = nn.Linear(inputs, hidden)
        self.linear = nn.Linear(inputs, width)
        self.out = nn.Linear(hidden, width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Encode inputs [B, ...] as features [B, width]."""
        flat = self.dropout(inputs.flatten(1))
        encoded: Tensor = self.linear(flat) + self.out(functional.gelu(self.hidden(flat)))
        return encoded


def residual_mlp(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return the encoder for features, or for anything else that can be flattened, and its width 64."""
    width = 64
    return ResidualMLP(math.prod(input_shape), hidden=128, width=width), width
