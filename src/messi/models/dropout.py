"""Dropout whose random numbers do not depend on how many processes divide a batch."""

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
