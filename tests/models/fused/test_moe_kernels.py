"""Experts of chosen tokens against all experts in float64; without a GPU, Triton's interpreter runs the kernels."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from messi.models.fused.moe_kernels import ChosenExperts
from messi.models.moe_orthogonal import chosen_slots, orthogonal_gates, orthogonal_slot_gates

from .common import DEVICE, ROUNDING, relative_error

TOKENS, EXPERTS, WIDTH, HIDDEN = 150, 4, 48, 72


def choices(kind: str) -> Tensor:
    """Return which experts tokens chose; one expert is never chosen."""
    torch.manual_seed(1)
    if kind == "one":
        return functional.one_hot(torch.randint(EXPERTS - 1, (TOKENS,)), EXPERTS).bool().to(DEVICE)
    return ((torch.rand(TOKENS, EXPERTS) > 0.5) & (torch.arange(EXPERTS) != 2)).to(DEVICE)


@pytest.mark.parametrize("kind", ["one", "any"])
def test_mixture_and_products_and_their_gradients_match_all_experts(kind: str) -> None:
    chosen = choices(kind)
    torch.manual_seed(0)
    shapes = ((WIDTH, HIDDEN), (1, HIDDEN), (HIDDEN, WIDTH), (1, WIDTH))
    tokens, *weights = [torch.randn(TOKENS, WIDTH), *(0.2 * torch.randn(EXPERTS, *shape) for shape in shapes)]
    given = [t.to(DEVICE).requires_grad_() for t in (tokens, *weights)]
    gates = (torch.rand(TOKENS, EXPERTS).to(DEVICE) * chosen).requires_grad_()
    slots = torch.eye(EXPERTS, dtype=torch.bool, device=DEVICE) & chosen[:, None]
    outputs = ChosenExperts(given[0], chosen, 1 if kind == "one" else EXPERTS, tuple(given[1:]), torch.float32)
    mixture, products = outputs.mixed(gates), outputs.products(slots)
    above, beside = torch.randn_like(mixture), torch.randn_like(products)
    grads = torch.autograd.grad((mixture * above).sum() + (products * beside).sum(), [gates, *given])

    exact = [t.detach().double().requires_grad_() for t in (gates, *given)]
    hidden = functional.gelu(torch.baddbmm(exact[3], exact[1].expand(EXPERTS, -1, -1), exact[2]))
    every = torch.baddbmm(exact[5], hidden, exact[4])
    wanted = torch.einsum("ne,enw->nw", exact[0] * chosen, every)
    both = torch.einsum("enw,fnw->nef", every, every) * (chosen[:, :, None] & chosen[:, None])
    expected = torch.autograd.grad((wanted * above).sum() + (both * beside).sum(), exact)
    assert relative_error(mixture, wanted) < ROUNDING
    assert relative_error(products, both) < ROUNDING
    for grad, other in zip(grads, expected, strict=True):
        assert relative_error(grad, other) < ROUNDING


def test_gram_schmidt_over_the_chosen_equals_that_over_all() -> None:
    torch.manual_seed(0)
    outputs, chosen = torch.randn(EXPERTS, TOKENS, WIDTH), choices("any").cpu()
    gates = torch.rand(TOKENS, EXPERTS) * chosen
    slots = chosen_slots(chosen, EXPERTS - 1)
    assert torch.equal(slots.any(1), chosen)
    own = torch.einsum("nke,enw->nkw", slots.float(), outputs)
    found = orthogonal_slot_gates(gates, slots, own @ own.mT)
    torch.testing.assert_close(found, orthogonal_gates(gates, outputs) * chosen)
