"""The expert head: its size, and that the batched experts are M plain MLPs."""

import math
from collections.abc import Iterable

import pytest
import torch
from torch import nn

from messi.models.experts import Experts
from messi.models.fused.experts import LowPrecisionExperts
from messi.models.head import MessiHead

WIDTH = 12
EXPERTS = 3


@pytest.fixture
def head() -> MessiHead:
    torch.manual_seed(0)
    return MessiHead(WIDTH, num_classes=5, num_experts=EXPERTS)


@pytest.fixture
def features() -> torch.Tensor:
    return torch.randn(7, WIDTH, generator=torch.Generator().manual_seed(1))


def plain_experts(experts: Experts) -> Iterable[nn.Sequential]:
    """Yield each expert as the layers described in the paper, with the same weights."""
    for weight_in, bias_in, weight_out, bias_out in zip(
        experts.weight_in, experts.bias_in, experts.weight_out, experts.bias_out, strict=True
    ):
        layers = (nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH))
        for layer, weight, bias in zip(layers, (weight_in, weight_out), (bias_in, bias_out), strict=True):
            layer.load_state_dict({"weight": weight.T, "bias": bias[0]})
        yield nn.Sequential(layers[0], nn.GELU(), layers[1])


@pytest.mark.parametrize(("width", "expected"), [(384, 7_091_718), (192, 1_776_390)])
def test_router_and_six_experts_have_the_papers_parameter_counts(width: int, expected: int) -> None:
    with torch.device("meta"):
        head = MessiHead(width, num_classes=7)
    assert sum(p.numel() for part in (head.router, head.experts) for p in part.parameters()) == expected
    assert sum(p.numel() for p in head.parameters()) == expected + 7 * (width + 1)


def test_batched_experts_equal_a_loop_of_plain_mlps(head: MessiHead, features: torch.Tensor) -> None:
    output = head(features)
    assert output.experts.shape == (EXPERTS, 7, WIDTH)
    for batched, plain in zip(output.experts, plain_experts(head.experts), strict=True):
        torch.testing.assert_close(batched, plain(features), rtol=1e-5, atol=1e-6)


def test_logits_are_the_classifier_of_the_routed_mixture(head: MessiHead, features: torch.Tensor) -> None:
    output = head(features)
    mixture = sum(
        (output.routing[:, m, None] * plain(features) for m, plain in enumerate(plain_experts(head.experts))),
        torch.zeros_like(features),
    )
    torch.testing.assert_close(output.logits, head.classifier(mixture), rtol=1e-5, atol=1e-6)


def test_routing_is_the_softmax_of_the_router_and_sums_to_one(head: MessiHead, features: torch.Tensor) -> None:
    routing = head(features).routing
    torch.testing.assert_close(routing.sum(1), torch.ones(7), rtol=1e-6, atol=0)
    scores = (features @ head.router.weight.T + head.router.bias).exp()
    torch.testing.assert_close(routing, scores / scores.sum(1, keepdim=True), rtol=1e-5, atol=0)


def test_routing_stays_float32_in_a_bfloat16_head(head: MessiHead, features: torch.Tensor) -> None:
    output = head.bfloat16()(features.bfloat16())
    assert output.routing.dtype == torch.float32
    assert output.logits.dtype == torch.bfloat16
    # A bfloat16 softmax would miss 1 by up to 2^-8.
    torch.testing.assert_close(output.routing.sum(1), torch.ones(7), rtol=1e-6, atol=0)


def test_every_parameter_gets_a_gradient(head: MessiHead, features: torch.Tensor) -> None:
    head(features).logits.square().sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum().item() > 0, name


def test_experts_start_as_different_uniform_draws_within_the_bounds_of_linear() -> None:
    torch.manual_seed(0)
    width = 48
    experts = Experts.initialised(width, num_experts=4)
    bounds = {"weight_in": width, "bias_in": width, "weight_out": 4 * width, "bias_out": 4 * width}
    for name, parameter in experts.named_parameters():
        bound = 1 / math.sqrt(bounds[name])
        assert bound * 0.95 < parameter.abs().max().item() <= bound, name
        # The standard deviation of a uniform law; at 192 draws (the smallest) its estimate is accurate to 5 %.
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1), name
        assert not torch.equal(parameter[0], parameter[1]), name


def test_the_bounds_of_linear_match_torch() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(48, 192)
    for parameter in layer.parameters():
        assert 0.95 / math.sqrt(48) < parameter.abs().max().item() <= 1 / math.sqrt(48)


def test_the_low_precision_experts_are_the_same_function() -> None:
    """In float32, where nothing is rounded away, value and all gradients are those of autograd."""
    torch.manual_seed(0)
    experts, features, above = Experts.initialised(8, 3), torch.randn(5, 8, requires_grad=True), torch.randn(3, 5, 8)
    inputs = [features, experts.weight_in, experts.bias_in, experts.weight_out, experts.bias_out]
    value = LowPrecisionExperts.apply(*inputs, torch.float32)
    torch.testing.assert_close(value, experts(features))
    found = torch.autograd.grad((value * above).sum(), inputs)
    expected = torch.autograd.grad((experts(features) * above).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
