"""Subset-conditioned invariance: each expert aligns the class-conditional domain pairs that are routed to it.

    L_ssi = mean or sum over slots (expert m, domains i < j, class c) of  a_mijc D(Z_m,i,c, Z_m,j,c)

``slots`` finds the slots of a batch and their weights a. On a GPU, ``kernels`` computes the same in float32.
Legend: M experts, B examples, R features, N padded examples per cell, S slots per expert.
"""

from typing import Literal

import torch
from torch import Tensor

from messi.core import gpu_kernels
from messi.core.errors import MessiError
from messi.discrepancy.mmd import BANDWIDTHS, mmd_squared
from messi.discrepancy.sinkhorn import entropic_ot
from messi.losses.ssi.slots import Slots, find_slots, slot_weights

Discrepancy = Literal["ot", "mmd"]
Reduction = Literal["mean", "sum"]
EpsilonScale = Literal["relative", "absolute"]


def ssi_loss(  # noqa: PLR0913 (the knobs of the method, all keywords)
    features: Tensor,
    routing: Tensor,
    labels: Tensor,
    domains: Tensor,
    *,
    discrepancy: Discrepancy = "ot",
    sharpness: float = 4.0,
    reduction: Reduction = "mean",
    epsilon: float = 0.1,
    epsilon_scale: EpsilonScale = "relative",
    iterations: int = 50,
    bandwidths: tuple[float, ...] = BANDWIDTHS,
) -> Tensor:
    """Return the subset-conditioned invariance loss of a batch, a scalar; 0 if no two domains share a class.

    Args:
        features: [M, B, R] outputs of every expert for every example.
        routing: [B, M] router probabilities; no gradient flows into them.
        labels: [B] integer classes.
        domains: [B] integer domains.
        discrepancy: "ot" for entropic optimal transport, "mmd" for squared MMD.
        sharpness: alpha, how strongly the routing mass determines the weight of a slot.
        reduction: mean or sum over the slots of all experts.
        epsilon: strength of the entropic term of "ot".
        epsilon_scale: "relative" to the batch's mean cost (detached), or "absolute".
        iterations: Sinkhorn iterations of "ot".
        bandwidths: kernel widths of "mmd".

    """
    _check_shapes(features, routing, labels, domains)
    if _has_kernels(features):
        from messi.losses.ssi import kernels  # noqa: PLC0415 (only CUDA builds have Triton)

        return kernels.ssi_loss(
            features,
            routing,
            labels,
            domains,
            discrepancy=discrepancy,
            sharpness=sharpness,
            reduction=reduction,
            epsilon=epsilon,
            epsilon_scale=epsilon_scale,
            iterations=iterations,
            bandwidths=bandwidths,
        )
    if not features.dtype.is_floating_point or torch.finfo(features.dtype).bits < 32:
        features = features.float()
    slots = find_slots(labels, domains)
    if len(slots.first) == 0:
        return (features * 0).sum()
    x, x_mask = _clouds(features, slots, slots.first)
    y, y_mask = _clouds(features, slots, slots.second)
    if discrepancy == "ot":
        relative = epsilon_scale == "relative"
        values = entropic_ot(x, y, x_mask, y_mask, epsilon=epsilon, iterations=iterations, relative=relative)
    else:
        values = mmd_squared(x, y, x_mask, y_mask, bandwidths=bandwidths)
    weighted = slot_weights(routing, slots, sharpness=sharpness).to(values.dtype) * values
    return weighted.mean() if reduction == "mean" else weighted.sum()


def _has_kernels(features: Tensor) -> bool:
    """Return whether ``kernels``, which compute in float32, process these features."""
    return gpu_kernels.run_on(features) and features.dtype != torch.float64 and features.numel() > 0


def _clouds(features: Tensor, slots: Slots, cells: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features of some cells as padded clouds [M, S, N, R], and their mask [M, S, N]."""
    members, mask = slots.members[cells], slots.mask[cells]
    # index_select, because the backward of indexing by a tensor is several times slower on a CPU.
    points = features.index_select(1, members.flatten()).unflatten(1, members.shape)
    return points, mask.expand(points.shape[:-1])


def _check_shapes(features: Tensor, routing: Tensor, labels: Tensor, domains: Tensor) -> None:
    if features.dim() != 3:
        raise MessiError(f"features must have the shape [experts, batch, width], but has {list(features.shape)}.")
    experts, batch, _ = features.shape
    for name, tensor, shape in (
        ("routing", routing, [batch, experts]),
        ("labels", labels, [batch]),
        ("domains", domains, [batch]),
    ):
        if list(tensor.shape) != shape:
            raise MessiError(f"{name} must have the shape {shape} to match features, but has {list(tensor.shape)}.")
