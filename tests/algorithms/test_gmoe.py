"""The terms of GMoE's loss and the effect of its options."""

from typing import Any

import pytest
import torch

from messi.algorithms.gmoe import importance_variation, load_variation
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.moe_vit import take_routings

from .moe_toys import make, separable


def test_the_loss_is_cross_entropy_plus_the_balance_terms_of_all_blocks() -> None:
    algorithm, batch = make("gmoe", moe_blocks=(1, 4), balance_weight=0.3, gate_noise=1.2), separable(0)
    torch.manual_seed(1)
    terms = algorithm.loss(batch)
    torch.manual_seed(1)
    logits = algorithm.classifier(algorithm.encoder(batch.inputs))
    routings = take_routings(algorithm.encoder)
    assert len(routings) == 2
    uneven = [
        (importance_variation(one.logits) + load_variation(one.logits, one.thresholds, scale=0.2)) / 2
        for one in routings
    ]
    torch.testing.assert_close(terms["cls"], domain_mean_cross_entropy(logits, batch.labels, batch.domains))
    torch.testing.assert_close(terms["bal"], 0.3 * (uneven[0] + uneven[1]))


def test_without_noise_only_the_importance_is_balanced() -> None:
    algorithm, batch = make("gmoe", gate_noise=0.0), separable(0)
    terms = algorithm.loss(batch)
    algorithm.encoder(batch.inputs)
    (routing,) = take_routings(algorithm.encoder)
    torch.testing.assert_close(terms["bal"], 0.01 * importance_variation(routing.logits))


def test_a_term_whose_weight_is_zero_is_left_out() -> None:
    assert set(make("gmoe", balance_weight=0.0).loss(separable(0))) == {"cls"}


def test_balancing_evens_out_the_use_of_the_experts() -> None:
    """Minimise only this term, starting from a router that prefers one expert."""
    algorithm, batch = make("gmoe", gate_noise=1.0, balance_weight=1.0), separable(0)
    router = algorithm.encoder.network.blocks[4].mlp.router
    with torch.no_grad():
        router.projection.bias += router.vectors[:, 0] * 30
    optimizer = torch.optim.Adam(router.parameters(), lr=3e-3)
    values = []
    for step in range(60):
        torch.manual_seed(step)
        value = algorithm.loss(batch)["bal"]
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[0] > 0.5
    assert values[-1] < 0.1 * values[0]


@pytest.mark.parametrize("setting", [{"expert_dropout": 0.5}, {"drop_path": 0.5}, {"gate_noise": 5.0}])
def test_only_training_is_random(setting: dict[str, Any]) -> None:
    algorithm, batch = make("gmoe", **{"gate_noise": 0.0, **setting}), separable(0)
    first, second = (algorithm.predict(batch.inputs).logits for _ in range(2))
    assert not torch.equal(first, second)
    plain = make("gmoe", gate_noise=0.0).eval()
    torch.testing.assert_close(algorithm.eval().predict(batch.inputs).logits, plain.predict(batch.inputs).logits)


def test_the_routing_of_an_image_is_that_of_its_class_token() -> None:
    algorithm, batch = make("gmoe", moe_blocks=(1, 4)).eval(), separable(0)
    routing = algorithm.predict(batch.inputs).routing
    algorithm.encoder(batch.inputs)
    last = take_routings(algorithm.encoder)[-1].gates.view(len(batch), 10, 6)[:, 0]
    assert torch.equal(routing, (last > 0).float())
