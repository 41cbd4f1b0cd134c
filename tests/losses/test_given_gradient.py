"""A loss with a gradient from elsewhere."""

import torch

from messi.losses.given_gradient import with_gradient


def test_value_and_gradient_are_those_given_beside_an_ordinary_loss() -> None:
    first, second = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    given = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])]
    loss = with_gradient(torch.tensor(7.0), [first, second], given)
    assert loss.item() == 7
    (2 * loss + first.sum()).backward()
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad.tolist() == [3.0, 5.0]
    assert second.grad.tolist() == [6.0, 8.0, 10.0]


def test_nothing_flows_to_where_the_value_came_from() -> None:
    source, parameter = torch.ones((), requires_grad=True), torch.ones(2, requires_grad=True)
    with_gradient(3 * source, [parameter], [torch.zeros(2)]).backward()
    assert source.grad is None
