"""The controls of MESSI: same loss, other slots or other weights."""

import itertools

import pytest
import torch
from torch import Tensor

from messi.discrepancy import reference
from messi.losses.ssi.loss import find_slots, slot_weights, ssi_loss
from messi.losses.ssi.selectors import Selector, select

EXPERTS, CLASSES = 3, 4


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features [M, B, R], routing [B, M], labels [B] and domains [B]."""
    stream = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (24,), generator=stream)
    features = torch.randn(EXPERTS, 24, 5, generator=stream, dtype=torch.float64)
    routing = torch.randn(24, EXPERTS, generator=stream).mul(3).softmax(-1)
    return features, routing, labels, torch.arange(24) % 3


def chosen(routing: Tensor, labels: Tensor, selector: Selector) -> tuple[Tensor, Tensor]:
    return select(routing, labels, selector=selector, num_classes=CLASSES)


def weights(routing: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
    return slot_weights(routing, find_slots(labels, domains), sharpness=4.0)


def test_global_alignment_is_the_plain_mean_over_all_slots(batch: tuple[Tensor, ...]) -> None:
    features, routing, labels, domains = batch
    everything, same = chosen(routing, labels, "global")
    options = {"epsilon": 5.0, "epsilon_scale": "absolute", "iterations": 300}
    loss = ssi_loss(features, everything, same, domains, **options)  # type: ignore[arg-type]
    values = [
        reference.entropic_ot(features[m, first], features[m, second], epsilon=5.0)[0]
        for (first, second), m in itertools.product(reference.slots(labels, domains), range(EXPERTS))
    ]
    torch.testing.assert_close(loss, torch.stack(values).mean(), rtol=1e-6, atol=0)


def test_random_slots_have_the_weights_of_the_routed_ones_in_other_places(batch: tuple[Tensor, ...]) -> None:
    _, routing, labels, domains = batch
    routed = weights(routing, labels, domains)
    found = []
    for seed in range(5):
        torch.manual_seed(seed)
        found.append(weights(*chosen(routing, labels, "random"), domains))
        # Slot by slot the experts have the same weights, in another order.
        torch.testing.assert_close(found[-1].sort(0).values, routed.sort(0).values)
    assert all(not torch.equal(a, b) for a, b in itertools.combinations([routed, *found], 2))


def test_random_slots_are_spread_evenly_over_the_experts(batch: tuple[Tensor, ...]) -> None:
    _, routing, labels, domains = batch
    torch.manual_seed(0)
    mean = torch.stack([weights(*chosen(routing, labels, "random"), domains) for _ in range(3000)]).mean(0)
    expected = weights(routing, labels, domains).mean(0).expand_as(mean)
    # The weights lie between 0.25 and 1, so a mean of 3,000 is off by at most 0.014 / 2 with 3 standard errors.
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.03)


def test_whole_domains_are_aligned_by_their_own_mass(batch: tuple[Tensor, ...]) -> None:
    features, routing, labels, domains = batch
    same, nothing = chosen(routing, labels, "domain")
    slots = find_slots(nothing, domains)
    assert sorted(len(members) for members in slots.members.tolist()) == [8, 8, 8]
    assert len(slots.first) == 3
    mass = torch.stack([routing[domains == d].mean(0) for d in range(3)])
    gate = torch.sigmoid(4.0 * mass)
    expected = torch.stack([gate[i] * gate[j] for i, j in itertools.combinations(range(3), 2)], 1)
    torch.testing.assert_close(weights(same, nothing, domains), expected)
    assert features.shape[1] == len(nothing)


def test_the_routed_selector_changes_nothing(batch: tuple[Tensor, ...]) -> None:
    _, routing, labels, _ = batch
    assert all(map(torch.equal, chosen(routing, labels, "routing"), (routing, labels)))
