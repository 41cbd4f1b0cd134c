"""One input of a request, ready for a batch."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ReadyInput:
    """A uint8 image [channels, height, width], or the features [F] of a row as the network takes them."""

    values: Tensor
    notes: tuple[str, ...] = ()
    """What the user should know about the input, such as an unknown category."""
