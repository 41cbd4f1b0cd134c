"""Gram-Schmidt over the outputs of experts, against loops over vectors in float64."""

import pytest
import torch
from torch import Tensor

from messi.models.moe_orthogonal import orthogonal_gates, orthogonal_rows

FLOOR = 0.1


def slow(vectors: list[Tensor]) -> list[Tensor]:
    """Return the orthogonal outputs of one token's experts, from the definition."""
    units: list[Tensor] = []
    results = []
    for vector in vectors:
        rest = vector - sum(((vector @ unit) * unit for unit in units), torch.zeros_like(vector))
        length = max(float(rest.norm()), FLOOR * float(vector.norm()))
        units.append(rest / length if length else rest)
        results.append(vector.norm() * units[-1])
    return results


def mixed(gates: Tensor, outputs: Tensor) -> Tensor:
    return torch.einsum("ne,enw->nw", orthogonal_gates(gates, outputs), outputs)


def gates_of(tokens: int, chosen: list[bool]) -> Tensor:
    torch.manual_seed(1)
    gates = torch.rand(tokens, len(chosen)) * torch.tensor(chosen)
    return gates / gates.sum(-1, keepdim=True)


@pytest.mark.parametrize("chosen", [[True] * 5, [False, True, False, True, False], [False, False, True, False, False]])
@pytest.mark.parametrize("alike", [0.0, 0.9, 0.99])
def test_the_mixture_matches_loops_over_the_chosen_experts(chosen: list[bool], alike: float) -> None:
    torch.manual_seed(0)
    outputs = (1 - alike) * torch.randn(5, 7, 16) + alike * torch.randn(7, 16)
    gates = gates_of(7, chosen)
    found = mixed(gates, outputs)
    for n in range(7):
        numbers = [e for e in range(5) if chosen[e]]
        orthogonal = slow([outputs[e, n].double() for e in numbers])
        wanted = sum((gates[n, e].item() * o for e, o in zip(numbers, orthogonal, strict=True)), torch.zeros(16))
        # The orthogonal part may be a hundredth of an output, which costs two digits of float32, twice for the square.
        torch.testing.assert_close(found[n].double(), wanted.double(), rtol=1e-3, atol=1e-4)


def test_outputs_that_differ_become_orthogonal_and_keep_their_lengths() -> None:
    torch.manual_seed(0)
    outputs = torch.randn(6, 4, 32) * torch.rand(6, 1, 1)
    products = torch.einsum("enw,fnw->nef", outputs, outputs)
    orthogonal = torch.einsum("nef,fnw->new", orthogonal_rows(products), outputs)
    gram = orthogonal @ orthogonal.mT
    torch.testing.assert_close(gram, torch.diag_embed(outputs.norm(dim=-1).T.square()), rtol=1e-4, atol=1e-4)


def test_by_hand() -> None:
    outputs = torch.tensor([[[3.0, 0.0]], [[1.0, 2.0]]])
    # The second, of length sqrt(5), loses its component along the first and is rescaled to its length.
    wanted = torch.tensor([[0.5 * 3.0, 0.5 * 5**0.5]])
    torch.testing.assert_close(mixed(torch.tensor([[0.5, 0.5]]), outputs), wanted)


def test_of_equal_experts_only_the_first_choice_has_an_effect() -> None:
    """This is the initial state, in which all experts are copies of one MLP."""
    torch.manual_seed(0)
    outputs, gates = torch.randn(1, 7, 16).repeat(4, 1, 1), gates_of(7, [False, True, False, True])
    torch.testing.assert_close(mixed(gates, outputs), gates[:, 1:2] * outputs[0], rtol=1e-4, atol=1e-4)


def test_a_tiny_remainder_is_not_amplified_without_limit() -> None:
    """A remainder of a thousandth of the output is amplified ten times, not a thousand times."""
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-3])
    found = mixed(torch.tensor([[0.5, 0.5]]), torch.stack([first, second])[:, None])
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.5 * 1e-2]]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["equal", "zero", "first zero", "random"])
def test_gradients_are_finite(kind: str) -> None:
    torch.manual_seed(0)
    outputs = torch.randn(4, 7, 16)
    if kind == "equal":
        outputs = outputs[:1].repeat(4, 1, 1)
    elif kind != "random":
        outputs[:1] = 0
        outputs *= kind != "zero"
    leaf, gates = outputs.requires_grad_(), gates_of(7, [True, True, False, True]).requires_grad_()
    mixed(gates, leaf).square().sum().backward()
    assert leaf.grad is not None
    assert gates.grad is not None
    assert leaf.grad.isfinite().all()
    assert gates.grad.isfinite().all()
    assert not leaf.grad[2].any()


def test_gradients_match_finite_differences() -> None:
    torch.manual_seed(0)
    outputs, gates = torch.randn(3, 4, 5, dtype=torch.double), gates_of(4, [True, False, True]).double()
    outputs.requires_grad_()
    # Not with respect to the gate: a gate of zero means that the expert is not chosen.
    assert torch.autograd.gradcheck(lambda given: mixed(gates, given), outputs)
