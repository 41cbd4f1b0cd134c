"""DynMoE's loss and its step, after which experts are added and removed."""

import copy
import functools
from typing import Any

import pytest
import torch

from messi.algorithms.dynmoe import direction_diversity, direction_simplicity
from messi.engine.stepper import AdamStepper, Flatness, OptimizerConfig
from messi.models.moe_dynamic import DynamicMoeLayer

from .moe_toys import fit, make, separable


def layers(algorithm: Any) -> list[DynamicMoeLayer]:
    return [module for module in algorithm.modules() if isinstance(module, DynamicMoeLayer)]


def test_the_two_terms_are_summed_over_the_blocks() -> None:
    algorithm, batch = make("dynmoe", moe_blocks=(1, 4), router_weight=0.3), separable(0)
    fit(algorithm, 3)
    first, second = layers(algorithm)
    terms = algorithm.loss(batch)
    for name, loss in (("div", direction_diversity), ("simp", direction_simplicity)):
        wanted = 0.3 * (loss(first.directions, first.active) + loss(second.directions, second.active))
        torch.testing.assert_close(terms[name], wanted)


def test_a_term_whose_weight_is_zero_is_left_out() -> None:
    assert set(make("dynmoe", router_weight=0.0).loss(separable(0))) == {"cls"}


@torch.no_grad()
def transcribe(layer: DynamicMoeLayer) -> None:
    """Add and remove experts as defined by the method, with plain Python conditions."""
    before = [e for e in range(len(layer.active)) if layer.active[e]]
    kept = [e for e in before if layer.used[e] > 0]
    in_use = set(kept)
    free = [e for e in range(len(layer.active)) if e not in in_use]
    if layer.strays > 0 and free:
        new = free[0]
        in_use.add(new)
        layer.directions[new] = layer.stray_sum / layer.stray_sum.norm()
        layer.thresholds[new] = 0
        for parameter in layer.experts.parameters():
            parameter[new] = parameter[kept or before].mean(0)
    layer.active.copy_(torch.tensor([e in in_use for e in range(len(layer.active))]))


def test_a_step_is_one_of_adam_followed_by_adding_and_removing_experts() -> None:
    algorithm = make("dynmoe", moe_blocks=(1, 4), num_experts=3, max_experts=5)
    twin = copy.deepcopy(algorithm)
    stepper, other = (
        AdamStepper(one, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-4)) for one in (algorithm, twin)
    )
    counts = []
    for step in range(12):
        batch = separable(step, per_domain=2)
        algorithm.update(batch, stepper)
        other.descend(functools.partial(twin.loss, batch))
        for layer in layers(twin):
            transcribe(layer)
        for name, value in algorithm.state_dict().items():
            torch.testing.assert_close(twin.state_dict()[name], value, rtol=1e-4, atol=1e-6, msg=f"{name}, {step}")
        twin.load_state_dict(algorithm.state_dict())  # rounding must not accumulate
        counts.append([int(layer.active.sum()) for layer in layers(algorithm)])
    assert len({count for own in counts for count in own}) > 1


@pytest.mark.parametrize("sharpness", ["sam", "sagm"])
def test_a_second_evaluation_does_not_decide_which_experts_stay(sharpness: Flatness) -> None:
    """The counts of the first evaluation are restored after the second."""
    algorithm = make("dynmoe")
    twin = copy.deepcopy(algorithm)
    batch = separable(0)
    config = OptimizerConfig(
        learning_rate=1e-3, weight_decay=0, flatness=sharpness, flatness_radius=50.0, sagm_alpha=1e-3
    )
    algorithm.update(batch, AdamStepper(algorithm, config))
    twin.loss(batch)
    for one, other in zip(layers(algorithm), layers(twin), strict=True):
        assert torch.equal(one.used, other.used)
        assert torch.equal(one.stray_sum, other.stray_sum)


def test_at_the_start_it_predicts_like_the_network_without_experts() -> None:
    """All experts are copies of the MLP, and in prediction every token has an expert."""
    batch, plain, algorithm = separable(0), make("erm").eval(), make("dynmoe").eval()
    torch.testing.assert_close(algorithm.encoder(batch.inputs), plain.encoder(batch.inputs), rtol=1e-4, atol=1e-5)


def test_unused_slots_are_never_chosen() -> None:
    algorithm = make("dynmoe", num_experts=2)
    routing = algorithm.eval().predict(separable(0).inputs).routing
    assert not routing[:, 2:].any()
    torch.testing.assert_close(routing.sum(-1), torch.ones(24))
