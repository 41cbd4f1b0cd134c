import pytest
import torch

from messi.core.errors import MessiError
from messi.diagnostics.alignment import class_conditional_energy, energy_on_slots
from messi.diagnostics.slots import domain_pairs

# Class 0: domains 0, 1, 2 at 0, 1 and 3. Class 1: domains 0 and 2 at 0 and 10; domain 1 does not have it.
FEATURES = torch.tensor([[0.0], [1.0], [3.0], [0.0], [10.0]])
LABELS, DOMAINS = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 2])


def test_single_points_by_hand() -> None:
    found = class_conditional_energy(FEATURES, LABELS, DOMAINS, num_classes=2, num_domains=3)
    assert domain_pairs(3) == [(0, 1), (0, 2), (1, 2)]
    assert found[:, 0].tolist() == [2, 6, 4]
    assert found[1, 1].item() == 20
    assert found[[0, 2], 1].isnan().all()


def test_a_class_without_examples_is_empty() -> None:
    found = class_conditional_energy(FEATURES, LABELS, DOMAINS, num_classes=3, num_domains=3)
    assert found[:, 2].isnan().all()


def test_runs_are_measured_on_slots_that_one_of_them_chose() -> None:
    experts = torch.stack([FEATURES, 2 * FEATURES])
    distances = class_conditional_energy(experts, LABELS, DOMAINS, num_classes=2, num_domains=3)
    chosen = torch.zeros(3, 2, 2, dtype=torch.bool)
    chosen[0, 0, 0] = chosen[1, 1, 1] = True
    # Expert 0 on domains 0, 1 of class 0: 2. Expert 1 on domains 0, 2 of class 1: 40.
    assert energy_on_slots(distances, chosen) == pytest.approx(21)
    assert energy_on_slots(distances / 2, chosen) == pytest.approx(10.5)


def test_chosen_slots_without_examples_are_named() -> None:
    distances = class_conditional_energy(FEATURES[None], LABELS, DOMAINS, num_classes=2, num_domains=3)
    chosen = torch.ones(3, 2, 1, dtype=torch.bool)
    with pytest.raises(MessiError, match="2 of the 6 selected slots have no examples"):
        energy_on_slots(distances, chosen)
