"""The precision of a run: chosen by the user or by the hardware, and recorded, so that resuming does not change it."""

from dataclasses import dataclass
from typing import Literal

StatedPrecision = Literal["float32", "bfloat16"]
"""What a user may choose, on every device."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The number formats of the forward pass; weights, their gradients and the optimizer are float32."""

    training: StatedPrecision
    prediction: Literal["float32", "bfloat16", "float16"]

    @classmethod
    def stated(cls, both: StatedPrecision) -> "Precision":
        """Return the same format for training and prediction."""
        return cls(training=both, prediction=both)
