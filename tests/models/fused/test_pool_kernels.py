"""Max pooling against torch's; without a GPU, Triton's interpreter runs the kernels."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from messi.models.fused.pool_kernels import max_pool

from .common import rand


def both(maps: Tensor, above: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return result and gradient of the kernels and of torch."""
    answers = []
    for pool in (max_pool, lambda maps: functional.max_pool2d(maps, 3, 2, 1)):
        leaf = maps.clone().requires_grad_()
        result = pool(leaf)
        (grad,) = torch.autograd.grad(result, leaf, above)
        answers.append([result.detach(), grad])
    return answers[0], answers[1]


@pytest.mark.parametrize(
    ("height", "width", "channels"), [(8, 8, 16), (7, 9, 16), (5, 4, 3), (1, 1, 8), (2, 3, 300), (1, 6, 5)]
)
def test_maxima_and_gradients_are_those_of_torch(height: int, width: int, channels: int) -> None:
    maps = rand(3, channels, height, width)
    above = rand(3, channels, (height + 1) // 2, (width + 1) // 2, seed=1)
    ours, theirs = both(maps, above)
    assert torch.equal(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-6, atol=1e-6)  # up to four numbers in another order


def test_of_equal_maxima_the_first_gets_the_gradient() -> None:
    maps = rand(2, 8, 9, 9).relu().round()  # many zeros, as after ReLU
    above = rand(2, 8, 5, 5, seed=1)
    ours, theirs = both(maps, above)
    assert torch.equal(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-6, atol=1e-6)


def test_nan_is_a_maximum_and_minus_infinity_may_be_one() -> None:
    maps = rand(1, 2, 6, 6)
    maps[0, 0, 2, 3] = float("nan")
    maps[0, 1] = -float("inf")
    ours, theirs = both(maps, rand(1, 2, 3, 3, seed=1))
    assert torch.isnan(ours[0]).sum() == 2  # column 3 is in two windows, row 2 in one
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_every_order_of_memory_gives_channels_last() -> None:
    maps = rand(2, 8, 6, 6)
    result = max_pool(maps)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(result, max_pool(maps.contiguous(memory_format=torch.channels_last)))


def test_gradients_are_repeated_to_the_bit() -> None:
    maps, above = rand(2, 16, 9, 9).relu(), rand(2, 16, 5, 5, seed=1)
    assert torch.equal(both(maps, above)[0][1], both(maps, above)[0][1])
