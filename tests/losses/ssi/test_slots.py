"""The slots of a batch, their weights, and the controls that select others."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from messi.discrepancy import reference
from messi.losses.ssi.loss import ssi_loss
from messi.losses.ssi.slots import Selector, SlotRule, Slots, SlotWeight, find_slots, select, slot_weights

EXPERTS, CLASSES = 3, 4


def as_lists(slots: Slots) -> list[tuple[list[int], list[int]]]:
    cells = [members[mask].tolist() for members, mask in zip(slots.members, slots.mask, strict=True)]
    return [(cells[i], cells[j]) for i, j in zip(slots.first.tolist(), slots.second.tolist(), strict=True)]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    examples=st.lists(
        st.tuples(st.sampled_from([-3, 0, 1, 7, 1000]), st.sampled_from([-1, 0, 2, 40])), min_size=0, max_size=24
    )
)
def test_slots_match_the_twin(examples: list[tuple[int, int]]) -> None:
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
    weights = slot_weights(routing, slots, SlotRule())
    # sigmoid(1.2) sigmoid(4) and sigmoid(2.8) sigmoid(0)
    assert weights.tolist() == [[pytest.approx(0.754701936, rel=1e-6)], [pytest.approx(0.471337912, rel=1e-6)]]
    assert not weights.requires_grad


def test_without_sharpness_every_weight_is_a_quarter() -> None:
    slots = find_slots(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 1]))
    routing = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    assert slot_weights(routing, slots, SlotRule(sharpness=0.0)).tolist() == [[0.25] * 4] * 3


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features [M, B, R], routing [B, M], labels [B] and domains [B]."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (24,), generator=generator)
    features = torch.randn(EXPERTS, 24, 5, generator=generator, dtype=torch.float64)
    routing = torch.randn(24, EXPERTS, generator=generator).mul(3).softmax(-1)
    return features, routing, labels, torch.arange(24) % 3


RULES: tuple[SlotWeight, ...] = ("sigmoid", "product", "centred")


def test_weights_of_every_rule_by_hand() -> None:
    # Masses (0.3, 0.7) and (1, 0) of two experts.
    slots = find_slots(torch.tensor([0, 0]), torch.tensor([0, 1]))
    routing = torch.tensor([[0.3, 0.7], [1.0, 0.0]])
    product = slot_weights(routing, slots, SlotRule("product", 4.0))
    assert product.tolist() == [[pytest.approx(0.3)], [0.0]]
    centred = slot_weights(routing, slots, SlotRule("centred", 4.0))
    # sigmoid(4 (0.6 - 1)) sigmoid(4 (2 - 1)) and sigmoid(4 (1.4 - 1)) sigmoid(4 (0 - 1))
    assert centred.tolist() == [[pytest.approx(0.1649603, rel=1e-5)], [pytest.approx(0.0149649, rel=1e-5)]]


@pytest.mark.parametrize("experts", [2, 6, 20])
@pytest.mark.parametrize("sharpness", [1.0, 4.0])
def test_a_uniform_router_gives_a_centred_weight_of_a_quarter(experts: int, sharpness: float) -> None:
    slots = find_slots(torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]))
    weights = slot_weights(torch.full((3, experts), 1 / experts), slots, SlotRule("centred", sharpness))
    torch.testing.assert_close(weights, torch.full((experts, 3), 0.25))


@pytest.mark.parametrize("rule", RULES)
def test_weights_match_the_twin_for_every_rule_and_are_one_everywhere_for_the_global_selector(
    batch: tuple[Tensor, ...], rule: SlotWeight
) -> None:
    _, routing, labels, domains = batch
    slots = find_slots(labels, domains)
    expected = reference.slot_weights(routing, labels, domains, sharpness=3.0, slot_weight=rule)
    found = slot_weights(routing, slots, SlotRule(rule, 3.0))
    torch.testing.assert_close(found.T.flatten().double(), expected, rtol=1e-6, atol=0)
    everything, _ = select(routing, labels, selector="global", num_classes=CLASSES, slot_weight=rule)
    assert (slot_weights(everything, slots, SlotRule(rule, 3.0)) == 1).all()


def chosen(routing: Tensor, labels: Tensor, selector: Selector) -> tuple[Tensor, Tensor]:
    return select(routing, labels, selector=selector, num_classes=CLASSES)


def weights(routing: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
    return slot_weights(routing, find_slots(labels, domains), SlotRule())


def test_global_alignment_is_the_plain_mean_over_all_slots(batch: tuple[Tensor, ...]) -> None:
    features, routing, labels, domains = batch
    everything, same = chosen(routing, labels, "global")
    options = {"epsilon": 5.0, "epsilon_scale": "absolute", "iterations": 300}
    loss = ssi_loss(features, everything, same, domains, **options)  # type: ignore[arg-type]
    values = [
        reference.entropic_ot(features[m, first], features[m, second], epsilon=5.0, iterations=1000)[0]
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
