"""The mean of the encoders' gradients over the processes of a run, computed during the backward pass.

``core/shares.py`` explains why the mean is the gradient of the whole batch. A message is sent as soon as enough
gradients are complete, while the backward pass goes on. Every process computes the same graph, so that gradients are
complete in the same order everywhere, and messages match.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from messi.core.processes import Processes

_MESSAGE = 16 * 2**20
"""Bytes after which a message is sent: large enough for the full bandwidth, small enough to begin early."""


class MeanGradients:
    """Replaces the gradients of encoders by their means over the processes after each backward pass."""

    def __init__(self, processes: Processes, encoders: Iterable[nn.Module]) -> None:
        self._processes = processes
        self._complete: list[Tensor] = []
        """Gradients that no message contains yet."""
        self._messages: list[Any] = []
        for parameter in {p: None for encoder in encoders for p in encoder.parameters() if p.requires_grad}:
            parameter.register_post_accumulate_grad_hook(self._add)

    def _add(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._complete.append(parameter.grad)
        if sum(gradient.nbytes for gradient in self._complete) >= _MESSAGE:
            self._send()

    def _send(self) -> None:
        self._messages.append(self._processes.begin_mean(self._complete))
        self._complete = []

    def finish(self) -> None:
        """Wait for the means, without waiting for a GPU."""
        if self._complete:
            self._send()
        for message in self._messages:
            self._processes.end(message)
        self._messages.clear()
