"""timm's stochastic depth, with random numbers that do not depend on how many processes divide a batch."""

from timm.layers import drop
from torch import Tensor

from messi.core import shares


class DropPath(drop.DropPath):
    """For an encoder: inputs [B, ...]."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop whole examples in training."""
        if shares.inside() is None or not self.training or not self.drop_prob:
            result: Tensor = super().forward(x)  # type: ignore[no-untyped-call]  # timm's has no types
            return result
        rate, shape = self.drop_prob, [1] * (x.dim() - 1)
        kept = shares.draw(len(x), lambda rows: drop.drop_path(x.new_ones(rows, *shape), rate, training=True))
        return x * kept
