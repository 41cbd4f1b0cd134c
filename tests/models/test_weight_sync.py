"""Copying weights and buffers between modules."""

import copy

import torch
from torch import nn

from messi.models.weight_sync import approach, overwrite


def twins() -> tuple[nn.Module, nn.Module]:
    """Return two networks with BatchNorm, of which the second has seen three batches."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    second = copy.deepcopy(first)
    optimizer = torch.optim.SGD(second.parameters(), lr=0.1)
    for _ in range(3):
        second(torch.randn(8, 3)).square().mean().backward()
        optimizer.step()
    return first, second


def test_overwriting_copies_values_and_keeps_the_tensors() -> None:
    first, second = twins()
    places = [tensor.data_ptr() for tensor in first.state_dict().values()]
    overwrite(first, second)
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))
    assert [tensor.data_ptr() for tensor in first.state_dict().values()] == places
    assert not set(places) & {tensor.data_ptr() for tensor in second.state_dict().values()}


def test_weights_and_running_statistics_are_interpolated() -> None:
    first, second = twins()
    before = copy.deepcopy(first.state_dict())
    approach(first, second, 0.25)
    for name, value in first.state_dict().items():
        goal = second.state_dict()[name]
        wanted = 0.75 * before[name] + 0.25 * goal if goal.is_floating_point() else goal
        torch.testing.assert_close(value, wanted)
    assert first.state_dict()["1.num_batches_tracked"] == 3
    assert all(parameter.requires_grad and parameter.grad is None for parameter in first.parameters())


def test_a_share_of_one_copies_everything() -> None:
    first, second = twins()
    approach(first, second, 1.0)
    for mine, theirs in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs)
