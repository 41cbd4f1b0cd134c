"""The subset-conditioned invariance loss on a GPU, value and gradient together; ``loss`` defines it.

The number of slots in a batch determines the work of the kernels, but not how often or how widely they are launched,
and the host never waits for a result: a step with this loss can be captured in a CUDA graph and replayed on other
batches. Every sum has a fixed order, so the same batch gives the same bits. Memory is indexed with 32 bits: M B B and
M B R must be below two billion.
Legend: M experts, B examples, R features.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.losses.ssi.gradient_kernels import add_up, compare_kernels, pull
from messi.losses.ssi.large_transport_kernels import solve_large
from messi.losses.ssi.memory_kernels import words
from messi.losses.ssi.slot_kernels import describe, find
from messi.losses.ssi.transport_kernels import compare_means, solve_small

_PROGRAMS = 512
"""Programs that share the slots of a batch: about what a large GPU runs at once, and the memory allows no more."""


def ssi_loss(
    features: Tensor,
    routing: Tensor,
    labels: Tensor,
    domains: Tensor,
    *,
    discrepancy: str,
    slot_weight: str,
    sharpness: float,
    reduction: str,
    debiased: bool,
    epsilon: float,
    epsilon_scale: str,
    iterations: int,
    bandwidths: tuple[float, ...],
) -> Tensor:
    """Return ``loss.ssi_loss`` in float32, a scalar; requires at least one feature and one iteration."""
    points, needed = features.detach().contiguous(), features.requires_grad and torch.is_grad_enabled()
    shape, device, transport = points.shape, points.device, discrepancy == "ot"
    with torch.cuda.device_of(features):  # Triton launches on the current device, even if the tensors are on another
        memory = torch.empty(words(*shape), dtype=torch.int32, device=device)
        find(labels, domains, memory)
        describe(points, routing.detach(), memory, slot_weight=slot_weight, sharpness=sharpness, centre=transport)
        if transport:
            relative = epsilon_scale == "relative"
            modes = {"RELATIVE": relative, "GRADIENT": needed, "DEBIASED": debiased}
            counts = _transport(memory, shape, epsilon, iterations, modes)
        else:
            counts = _mmd(memory, shape, bandwidths, gradient=needed)
        value = torch.empty((), dtype=torch.float32, device=device)
        if needed:
            gradient = torch.empty_like(points, dtype=torch.float32)
            pull[shape[0], (shape[1] + 15) // 16, (shape[2] + 31) // 32](
                points, memory, value, gradient, *counts, *shape, DEFECTS=transport, OWN=debiased, REDUCTION=reduction
            )  # fmt: skip
            value = _WithGradient.apply(features, (value, gradient))
        else:
            add_up[1,](memory, value, *counts, *shape, REDUCTION=reduction)
    return value


class _WithGradient(torch.autograd.Function):
    """A scalar whose gradient was computed with it; the backward pass only scales it."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, found: tuple[Tensor, Tensor]) -> Tensor:
        value, gradient = found
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return grad * gradient, None  # autograd converts it to the type of the features


def _transport(
    memory: Tensor, shape: torch.Size, epsilon: float, iterations: int, modes: dict[str, bool]
) -> tuple[int, int]:
    """Compute entropic OT in parts, and what the gradient needs; return the numbers of parts and totals."""
    experts, batch, _ = shape
    programs = min(_PROGRAMS, 1 << (experts * batch - 1).bit_length())
    compare_means[programs,](memory, *shape, GRADIENT=modes["GRADIENT"], PROGRAMS=programs)
    solve_small[programs,](memory, epsilon, iterations, *shape, **modes, PROGRAMS=programs, num_warps=1)
    # Both cells of a slot that has to be solved have at least two points; a cell's own transport needs one more.
    if batch <= 16 + (1 if modes["DEBIASED"] else 2):
        return 2 * programs, programs
    solve_large[programs,](memory, epsilon, iterations, *shape, **modes, PROGRAMS=programs, num_warps=8)
    return 3 * programs, programs


def _mmd(memory: Tensor, shape: torch.Size, bandwidths: tuple[float, ...], *, gradient: bool) -> tuple[int, int]:
    """Compute squared MMD in parts, and what the gradient needs; return the numbers of parts and totals."""
    experts, batch, _ = shape
    tiles = (batch + 15) // 16
    compare_kernels[experts, tiles, tiles](memory, *shape, BANDWIDTHS=bandwidths, GRADIENT=gradient, num_warps=1)
    return experts * tiles * tiles, experts * tiles
