"""A recording contains what the model did."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.common.base import ALGORITHMS
from messi.core.errors import MessiError
from messi.data.sealed_data import TargetSealedError
from messi.diagnostics.recording import trace
from messi.models.moe_layers import MoeLayer

from .helpers import PER_DOMAIN, SIZE, examples, loader_of, make

ROUTERS = {"messi": "head", "gmoe": "blocks", "omoe": "blocks", "dynmoe": "blocks"}


def inputs() -> Tensor:
    return torch.randn(4, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_every_recording_contains_the_prediction_of_its_method(name: str) -> None:
    algorithm: Any = make(name)
    with torch.no_grad():
        answer, inside = algorithm.predict(inputs()), algorithm.inspect(inputs())
        assert torch.equal(inside.logits, answer.logits)
        assert inside.encoded is not None
        assert inside.classified is not None
        holder = algorithm.head if name == "messi" else algorithm
        classifier = holder.classifier if hasattr(holder, "classifier") else holder.network[1]
        assert torch.equal(classifier(inside.classified), answer.logits)
    if name not in ROUTERS:
        assert inside.experts is None
        assert answer.routing is None
        return
    assert inside.experts.place == ROUTERS[name]
    assert torch.equal(inside.experts.routing, answer.routing[:, :6]), "the other two slots of DynMoE are not in use"
    assert inside.experts.outputs.shape[:2] == (6, 4)


def test_the_classifier_of_messi_reads_the_routed_mixture_of_the_outputs() -> None:
    with torch.no_grad():
        inside = make("messi").inspect(inputs())
    assert inside.experts is not None
    mixture = sum(inside.experts.routing[:, m, None] * inside.experts.outputs[m] for m in range(6))
    torch.testing.assert_close(inside.classified, mixture)


@pytest.mark.parametrize("name", ["gmoe", "omoe"])
def test_the_outputs_of_a_block_match_each_mlp_on_the_class_token(name: str) -> None:
    algorithm = make(name)
    layer: Any = [module for module in algorithm.modules() if isinstance(module, MoeLayer)][-1]
    entered: list[Tensor] = []
    layer.register_forward_hook(lambda _module, args, _output: entered.append(args[0][:, 0]))
    with torch.no_grad():
        inside = algorithm.inspect(inputs())
    assert inside.experts is not None
    assert not layer.experts._forward_hooks, "nothing is kept"
    experts = layer.experts
    for e, found in enumerate(inside.experts.outputs):
        hidden = functional.gelu(entered[0] @ experts.weight_in[e] + experts.bias_in[e])
        torch.testing.assert_close(found, hidden @ experts.weight_out[e] + experts.bias_out[e])


def test_unused_slots_of_dynmoe_are_not_experts() -> None:
    algorithm: Any = make("dynmoe")
    algorithm._layers()[-1].active.copy_(torch.tensor([1, 0, 1, 0, 0, 0, 1, 0], dtype=torch.bool))
    with torch.no_grad():
        answer, inside = algorithm.predict(inputs()), algorithm.inspect(inputs())
    assert torch.equal(inside.experts.routing, answer.routing[:, [0, 2, 6]])
    assert len(inside.experts.outputs) == 3


def test_every_example_of_a_role_is_recorded_once_with_its_label_and_domain() -> None:
    data = examples(per_domain=70)
    algorithm = make("erm").train()
    traces = list(trace(algorithm, loader_of(data, sources=(1, 0)), "source_val"))
    found, domains = (torch.cat([getattr(one, name) for one in traces]) for name in ("examples", "domains"))
    assert found.tolist() == [*range(70, 140), *range(70)]
    assert domains.tolist() == [0] * 70 + [1] * 70, "positions in the list of domains"
    assert torch.equal(torch.cat([one.labels for one in traces]), data.labels[found])
    assert algorithm.training, "as before"


def test_the_number_of_examples_per_domain_can_be_limited() -> None:
    traces = list(trace(make("erm"), loader_of(examples()), "source_val", most=5))
    assert [one.examples.tolist() for one in traces] == [
        list(range(0, PER_DOMAIN, 4)),
        list(range(PER_DOMAIN, 2 * PER_DOMAIN, 4)),
    ]


def test_a_sealed_target_stays_sealed() -> None:
    with pytest.raises(TargetSealedError):
        next(trace(make("erm"), loader_of(examples(), opened=False), "target"))


def test_asking_a_method_without_router_for_experts_gives_an_error() -> None:
    one = next(trace(make("erm"), loader_of(examples()), "source_val"))
    with pytest.raises(MessiError, match="This method has no router"):
        _ = one.experts
