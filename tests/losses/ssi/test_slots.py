"""Which examples are compared with which, and with what weight."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from messi.discrepancy import reference
from messi.losses.ssi.loss import Slots, find_slots, slot_weights


def as_lists(slots: Slots) -> list[tuple[list[int], list[int]]]:
    cells = [members[mask].tolist() for members, mask in zip(slots.members, slots.mask, strict=True)]
    return [(cells[i], cells[j]) for i, j in zip(slots.first.tolist(), slots.second.tolist(), strict=True)]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    examples=st.lists(
        st.tuples(st.sampled_from([-3, 0, 1, 7, 1000]), st.sampled_from([-1, 0, 2, 40])), min_size=0, max_size=24
    )
)
def test_slots_are_the_twins(examples: list[tuple[int, int]]) -> None:
    labels = torch.tensor([label for label, _ in examples], dtype=torch.long)
    domains = torch.tensor([domain for _, domain in examples], dtype=torch.long)
    assert as_lists(find_slots(labels, domains)) == reference.slots(labels, domains)


def test_slots_by_hand() -> None:
    labels = torch.tensor([5, 5, 9, 5, 9, 5])
    domains = torch.tensor([1, 0, 1, 1, 1, 2])
    slots = find_slots(labels, domains)
    # Class 5 is in the domains 0, 1, 2; class 9 only in domain 1.
    assert as_lists(slots) == [([1], [0, 3]), ([1], [5]), ([0, 3], [5])]
    assert slots.mask.sum().item() == len(labels)


def test_weights_by_hand() -> None:
    # The mean masses of the two cells are (0.3, 0.7) and (1, 0); the sharpness is 4.
    slots = find_slots(torch.tensor([0, 0, 0]), torch.tensor([0, 0, 1]))
    routing = torch.tensor([[0.2, 0.8], [0.4, 0.6], [1.0, 0.0]], requires_grad=True)
    weights = slot_weights(routing, slots, sharpness=4.0)
    # sigmoid(1.2) sigmoid(4) and sigmoid(2.8) sigmoid(0)
    assert weights.tolist() == [[pytest.approx(0.754701936, rel=1e-6)], [pytest.approx(0.471337912, rel=1e-6)]]
    assert not weights.requires_grad


def test_without_sharpness_every_weight_is_a_quarter() -> None:
    slots = find_slots(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 1]))
    routing = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    assert slot_weights(routing, slots, sharpness=0.0).tolist() == [[0.25] * 4] * 3
