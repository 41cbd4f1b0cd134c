"""Subset-conditioned invariance: each expert aligns the class-conditional domain pairs that are routed to it.

    L_ssi = mean or sum over slots (expert m, domains i < j, class c) of  a_mijc D(Z_m,i,c, Z_m,j,c),
            or their weighted mean, which is divided by the sum of a

``slots`` finds the slots of a batch and their weights a. On a GPU, ``kernels`` computes the same in float32.
Legend: M experts, B examples, R features, N padded examples per cell, S slots per expert.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from messi.core import gpu_kernels
from messi.core.errors import MessiError
from messi.discrepancy.mmd import BANDWIDTHS, mmd_squared
from messi.discrepancy.sinkhorn import entropic_ot, sinkhorn_divergence
from messi.losses.ssi.slots import SlotRule, Slots, SlotWeight, find_slots, slot_weights

Discrepancy = Literal["ot", "mmd"]
Reduction = Literal["mean", "sum", "weighted"]
EpsilonScale = Literal["relative", "absolute"]


def ssi_loss(  # noqa: PLR0913 (the knobs of the method, all keywords)
    features: Tensor,
    routing: Tensor,
    labels: Tensor,
    domains: Tensor,
    *,
    discrepancy: Discrepancy = "ot",
    slot_weight: SlotWeight = "sigmoid",
    sharpness: float = 4.0,
    reduction: Reduction = "mean",
    debiased: bool = False,
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
        slot_weight: how the routing masses of its two cells determine the weight of a slot (``slots``).
        sharpness: alpha, how strongly they do in "sigmoid" and "centred".
        reduction: mean or sum over the slots of all experts, or their sum divided by the sum of their weights.
        debiased: subtract from "ot" its values within the two cells, which makes it zero for equal cells.
        epsilon: strength of the entropic term of "ot".
        epsilon_scale: "relative" to the batch's mean cost (detached), or "absolute".
        iterations: Sinkhorn iterations of "ot".
        bandwidths: kernel widths of "mmd".

    """
    _check_shapes(features, routing, labels, domains)
    require_debiasable(discrepancy, debiased=debiased)
    if _has_kernels(features):
        from messi.losses.ssi import kernels  # noqa: PLC0415 (only CUDA builds have Triton)

        return kernels.ssi_loss(
            features,
            routing,
            labels,
            domains,
            discrepancy=discrepancy,
            slot_weight=slot_weight,
            sharpness=sharpness,
            reduction=reduction,
            debiased=debiased,
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
    solver: dict[str, Any] = {"epsilon": epsilon, "iterations": iterations, "relative": epsilon_scale == "relative"}
    if debiased:
        points, mask = _clouds(features, slots, torch.arange(len(slots.members), device=features.device))
        values = sinkhorn_divergence(points, mask, slots.first, slots.second, **solver)
    else:
        clouds = (_clouds(features, slots, cells) for cells in (slots.first, slots.second))
        (x, x_mask), (y, y_mask) = clouds
        if discrepancy == "ot":
            values = entropic_ot(x, y, x_mask, y_mask, **solver)
        else:
            values = mmd_squared(x, y, x_mask, y_mask, bandwidths=bandwidths)
    weights = slot_weights(routing, slots, SlotRule(slot_weight, sharpness)).to(values.dtype)
    return _reduced(weights, values, reduction)


def scale_free(features: Tensor) -> Tensor:
    """Centre the outputs of each expert over the batch and scale their mean squared norm to 1: [M, B, R], float32.

    The result, and a loss of it, do not change when an expert's outputs are scaled or moved, so the loss cannot be
    reduced by shrinking them. Outputs that differ only by rounding become zero, without a gradient.
    """
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    centred = features - features.mean(1, keepdim=True)
    square = centred.square().sum(-1).mean(-1)
    limits = torch.finfo(features.dtype)
    rounding = (8 * limits.eps) ** 2 * features.detach().square().sum(-1).mean(-1) + limits.tiny
    scale = torch.rsqrt(square.maximum(rounding)) * (square > rounding)
    return centred * scale[:, None, None]


def require_debiasable(discrepancy: Discrepancy, *, debiased: bool) -> None:
    """Raise an error for a debiased MMD."""
    if debiased and discrepancy == "mmd":
        raise MessiError(
            "debiased applies to the discrepancy 'ot' only, because 'mmd' is already zero for equal cells; "
            "set discrepancy to 'ot' or leave debiased off."
        )


def _reduced(weights: Tensor, values: Tensor, reduction: Reduction) -> Tensor:
    weighted = weights * values
    if reduction == "mean":
        return weighted.mean()
    if reduction == "weighted":
        return weighted.sum() / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)
    return weighted.sum()


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
