"""The gradient penalty of DANN."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.dann import gradient_penalty


def test_by_hand_with_squares() -> None:
    # The loss x^2 + 3 y of each row has the gradient (2 x, 3): squared norms 4 + 9 and 16 + 9.
    inputs = torch.tensor([[1.0, 5.0], [2.0, -1.0]], requires_grad=True)
    penalty = gradient_penalty(inputs[:, 0] ** 2 + 3 * inputs[:, 1], inputs)
    assert penalty.item() == pytest.approx((13 + 25) / 2)
    (gradient,) = torch.autograd.grad(penalty, inputs)
    assert gradient.tolist() == [[4.0, 0.0], [8.0, 0.0]]  # of the mean of 4 x^2 + 9


def test_it_is_differentiable_in_inputs_and_weights() -> None:
    torch.manual_seed(0)
    labels = torch.tensor([0, 1, 1, 0])

    def penalty(weight: Tensor, inputs: Tensor) -> Tensor:
        losses = functional.cross_entropy(torch.tanh(inputs) @ weight, labels, reduction="none")
        return gradient_penalty(losses, inputs)

    weight = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    inputs = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(penalty, (weight, inputs))


def test_with_a_single_class_the_penalty_is_zero() -> None:
    inputs = torch.randn(4, 3, requires_grad=True)
    losses = functional.cross_entropy(inputs[:, :1], torch.zeros(4, dtype=torch.long), reduction="none")
    penalty = gradient_penalty(losses, inputs)
    (gradient,) = torch.autograd.grad(penalty, inputs)
    assert penalty.item() == 0
    assert gradient.isfinite().all()
