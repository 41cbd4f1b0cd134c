"""Which parts of an encoder train (``--tune``): all, none, the last blocks, or low-rank changes of its weights."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from messi.core.errors import MessiError
from messi.models.layer_depth import layers_below_head

TuningKind = Literal["full", "head", "last", "lora"]
_WITH_NUMBER = re.compile("(last|lora):([1-9][0-9]{0,4})")


@dataclass(frozen=True)
class Tuning:
    """A parsed value of ``--tune``."""

    kind: TuningKind = "full"
    number: int = 0
    """The number of blocks of "last", or the rank of "lora"."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" if self.number else self.kind


FULL = Tuning()


def parse_tuning(text: str) -> Tuning:
    """Return the tuning that a text such as "last:4" describes."""
    if text in ("full", "head"):
        return Tuning(text)  # type: ignore[arg-type]  # mypy does not narrow a text by its values
    if found := _WITH_NUMBER.fullmatch(text):
        return Tuning(found[1], int(found[2]))  # type: ignore[arg-type]
    raise MessiError(
        "tune must be full, head, last:N (the last N blocks) or lora:R (changes of rank R), such as last:4 or lora:8, "
        f"but is {text!r}."
    )


def last_blocks(network: nn.Module, number: int) -> set[nn.Parameter]:
    """Return the parameters of the last blocks of a network, and of everything after them."""
    below_head = layers_below_head(network)
    blocks = max(below_head.values(), default=1) - 1  # without the embedding or stem
    if number > blocks:
        raise MessiError(
            f"tune 'last:{number}' names more blocks than the {blocks} of this backbone; use a smaller number, or "
            "'full' to train everything."
        )
    return {parameter for parameter, layers in below_head.items() if layers <= number}


def fully_trained(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the largest modules of which every parameter trains."""
    parameters = list(network.parameters())
    if parameters and all(parameter.requires_grad for parameter in parameters):
        yield network
        return
    for child in network.children():
        yield from fully_trained(child)
