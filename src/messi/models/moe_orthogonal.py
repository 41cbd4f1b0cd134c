"""Gram-Schmidt over the outputs of the chosen experts of a token, in the order of their indices.

    w_e = v_e - sum over earlier f of <v_e, u_f> u_f,   u_e = w_e / max(|w_e|, 0.1 |v_e|),   o_e = |v_e| u_e

An output keeps its length, which preserves the scale of the pretrained MLP. An output that adds little to the earlier
ones is shortened instead of amplified from rounding errors: at the start, when all experts are equal, the later ones
give zero, and no gradient is divided by zero. An o_e is a linear combination of the v, so mixing the o is mixing the v
with other gates. These follow from the inner products of the outputs, and nothing of the size of the outputs is
computed. Legend: N tokens, E experts, W width.
"""

import torch
from torch import Tensor

_FLOOR = 0.1
"""If less than this fraction of an output is new, it is not scaled to its full length."""
_TINY = 1e-12


def orthogonal_gates(gates: Tensor, outputs: Tensor) -> Tensor:
    """Return gates for the outputs v that mix the orthogonal outputs o with ``gates``: [N, E], [E, N, W] -> [N, E].

    Experts with a gate of zero are ignored.
    """
    chosen = (gates > 0).to(outputs.dtype)
    products = torch.einsum("enw,fnw->nef", outputs, outputs) * chosen[:, :, None] * chosen[:, None]
    return torch.einsum("ne,nef->nf", gates, orthogonal_rows(products))


def chosen_slots(chosen: Tensor, most: int) -> Tensor:
    """Return which expert is the first choice of a token, by index, which the second: [N, E] -> [N, K, E].

    With fewer than K = ``most`` choices, the last slots are empty.
    """
    order = chosen.cumsum(-1)[:, None]
    return (order == torch.arange(1, most + 1, device=chosen.device)[:, None]) & chosen[:, None]


def orthogonal_slot_gates(gates: Tensor, slots: Tensor, products: Tensor) -> Tensor:
    """Return what :func:`orthogonal_gates` does, from the inner products of the chosen outputs alone.

    Takes gates [N, E], slots [N, K, E] and products [N, K, K].
    """
    of_slots = (gates[:, None] * slots).sum(-1, keepdim=True)
    return ((of_slots * orthogonal_rows(products)).sum(1)[:, :, None] * slots).sum(1)


def orthogonal_rows(products: Tensor) -> Tensor:
    """Return R with o_e = sum_f R_ef v_f from the inner products of the v: [N, E, E] -> [N, E, E]."""
    squares = products.diagonal(dim1=-2, dim2=-1)
    experts = squares.shape[-1]
    first = torch.eye(experts, dtype=products.dtype, device=products.device)
    units = products.new_zeros(products.shape[0], 1, experts)
    for e in range(experts):
        along = (units * products[:, None, e]).sum(-1, keepdim=True)
        row = first[e] - (along * units).sum(1)
        square = (row[:, :, None] * products * row[:, None]).sum((1, 2))
        # The maximum of the squares, because the root has no gradient at zero.
        length = torch.maximum(square, _FLOOR**2 * squares[:, e]).clamp_min(_TINY).sqrt()
        units = torch.cat([units, (row / length[:, None])[:, None]], dim=1)
    return units[:, 1:] * squares.clamp_min(_TINY).sqrt()[:, :, None]
