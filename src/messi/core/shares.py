"""Divide the work of an encoder among the processes of a run, so that the loss is that of the whole batch.

Every process knows all labels and domains of a batch, and encodes only its share of the inputs. A gather returns the
features of the whole batch to every process, in the order of a single process. Everything after the encoder is computed
by every process, with equal inputs and equal random numbers, so that its results are equal to the bit. A method
therefore computes the same loss as in a single process, whichever examples its terms connect.

Gradients. All processes have the same gradient of the loss L with respect to the gathered features. In the backward
pass each takes its own rows of it, times the number N of processes. The mean over the processes is then the gradient of
L for every parameter:

- a parameter of the encoder, used for shares: the mean of N times the sum over its own rows is the sum over all rows;
- the same parameter, used by every process alike, such as DynMoE's directions in its loss: the mean of equal numbers;
- any other parameter has equal gradients everywhere, so that they need no mean.

The engine takes the mean of the encoders' gradients (engine/mean_gradients.py) after each backward pass, that is for
every point of SAM and SAGM, for every step of an inner loop (Fish, MLDG) and for every network (LFME). A gradient that
a method computes itself and passes on (MLDG's first-order term) is linear in it. Second derivatives with respect to
features (DANN's penalty) do not reach the encoder. Second derivatives through it would need a mean in between:
differentiating the gather twice is an error.

Random numbers. A layer inside the encoder draws them for the whole batch and uses its own rows (:func:`draw`), so that
those of an example do not depend on N. A layer that combines examples gathers what it needs (:func:`whole`,
:func:`total`).

Legend: B rows of the whole batch, S = ceil(B / N) rows of a share. If N does not divide B, the last shares repeat the
last row: every process has the same shapes, and the gather drops the repetitions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.core.batch import Batch
from messi.core.errors import MessiError
from messi.core.processes import Processes


@dataclass(frozen=True)
class Share:
    """The part of a batch of ``rows`` inputs that this process encodes."""

    processes: Processes
    rows: int

    @property
    def size(self) -> int:
        """S, the same in every process."""
        return -(-self.rows // self.processes.size)

    @property
    def own_rows(self) -> slice:
        """The rows of this process, without repetitions."""
        start = min(self.processes.rank * self.size, self.rows)
        return slice(start, min(start + self.size, self.rows))

    def of(self, values: Tensor, dim: int = 0) -> Tensor:
        """Return this process's part of values of the whole batch; a row may consist of several, such as tokens."""
        each = values.shape[dim] // self.rows
        rows, missing = self.own_rows, self.size - (self.own_rows.stop - self.own_rows.start)
        part = values.narrow(dim, rows.start * each, (rows.stop - rows.start) * each)
        if missing:
            last = values.narrow(dim, (self.rows - 1) * each, each)
            part = torch.cat([part, *[last] * missing], dim)
        return part

    def without_repetitions(self, part: Tensor) -> Tensor:
        """Return the values of this process's own rows."""
        rows = self.own_rows
        return part[: (rows.stop - rows.start) * (len(part) // self.size)]

    def gather(self, part: Tensor) -> Tensor:
        """Return the values of the whole batch: [S k, ...] -> [B k, ...]; the result is used by every process alike."""
        whole: Tensor = _Gather.apply(part, self)
        return whole


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, share: Share) -> Tensor:
        ctx.share = share
        return share.processes.gather(part)[: share.rows * (len(part) // share.size)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        share: Share = ctx.share
        own = share.of(gradient) * share.processes.size
        own[len(share.without_repetitions(own)) :] = 0
        return own, None


@dataclass(frozen=True)
class _Step:
    """A training step of several processes."""

    processes: Processes
    method: str
    inputs: Tensor | None
    """This process's share of the inputs; None if every process has all of them."""
    rows: int

    def share_of(self, inputs: Tensor) -> tuple[Share, Tensor]:
        """Return the share of this process and its inputs."""
        if self.inputs is None:
            share = Share(self.processes, len(inputs))
            return share, share.of(inputs)
        if inputs is not self.inputs:
            raise MessiError(
                f"{self.method} changes its inputs before they are encoded, and several processes divide them; set "
                "whole_inputs = True in its class, or use one process."
            )
        return Share(self.processes, self.rows), inputs


_step: ContextVar[_Step | None] = ContextVar("step", default=None)
_inside: ContextVar[Share | None] = ContextVar("inside", default=None)


@contextmanager
def dividing(processes: Processes | None, batch: Batch, method: str) -> Iterator[None]:
    """Divide the work of all encoders inside the block; in a single process, do nothing."""
    if processes is None:
        yield
        return
    divided = len(batch.inputs) != len(batch)
    before = _step.set(_Step(processes, method, batch.inputs if divided else None, len(batch)))
    try:
        yield
    finally:
        _step.reset(before)


def encode(inputs: Tensor, network: Callable[[Tensor], Tensor]) -> Tensor:
    """Encode inputs; if several processes take the step, encode this one's share and return the features of all."""
    step = _step.get()
    if step is None:
        return network(inputs)
    share, part = step.share_of(inputs)
    before = _inside.set(share)
    try:
        return share.gather(network(part))
    finally:
        _inside.reset(before)


def inside() -> Share | None:
    """Return the share that is being encoded; None outside an encoder or in a single process."""
    return _inside.get()


def draw(rows: int, random: Callable[[int], Tensor], dim: int = 0) -> Tensor:
    """Return ``random(rows)``; inside a share, this process's rows of what a single process would draw."""
    share = inside()
    if share is None:
        return random(rows)
    return share.of(random(rows // share.size * share.rows), dim)


def whole(part: Tensor) -> Tensor:
    """Return values without a gradient for all rows of the batch."""
    share = inside()
    return part if share is None else share.processes.gather(part)[: share.rows * (len(part) // share.size)]


def total(count: Callable[..., Tensor], *values: Tensor) -> Tensor:
    """Return ``count(*values)``, which is a sum over rows without a gradient, for the whole batch."""
    share = inside()
    return count(*values) if share is None else share.processes.sum(count(*map(share.without_repetitions, values)))
