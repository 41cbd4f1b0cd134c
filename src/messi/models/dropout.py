"""Dropout whose random numbers do not depend on how many processes divide a batch."""

from timm.layers import drop
from torch import Tensor, nn
from torch.nn import functional

from messi.core import shares


def dropped(values: Tensor, rate: float, dim: int = 0) -> Tensor:
    """Set a fraction of the values to zero and scale the others; ``dim`` has the examples or their tokens."""
    if shares.inside() is None:
        return functional.dropout(values, rate)

    def kept(rows: int) -> Tensor:
        shape = list(values.shape)
        shape[dim] = rows
        return functional.dropout(values.new_ones(shape), rate)

    return values * shares.draw(values.shape[dim], kept, dim)


class Dropout(nn.Dropout):
    """Torch's dropout for an encoder: inputs [B, ...]."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop values in training."""
        return dropped(inputs, self.p) if self.training else inputs


class DropPath(drop.DropPath):
    """timm's stochastic depth for an encoder: inputs [B, ...]."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop whole examples in training."""
        if shares.inside() is None or not self.training or not self.drop_prob:
            result: Tensor = super().forward(x)  # type: ignore[no-untyped-call]  # timm's has no types
            return result
        rate, shape = self.drop_prob, [1] * (x.dim() - 1)
        kept = shares.draw(len(x), lambda rows: drop.drop_path(x.new_ones(rows, *shape), rate, training=True))
        return x * kept
