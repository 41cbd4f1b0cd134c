"""The expert head: its size, that the batched experts are M plain MLPs, and its options beyond the paper."""

import math
from collections.abc import Iterable

import pytest
import torch
from torch import nn

from messi.models.experts import Experts
from messi.models.fused.experts import LowPrecisionExperts
from messi.models.head import MessiHead, unit_rms

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
        width, hidden = weight_in.shape
        layers = (nn.Linear(width, hidden), nn.Linear(hidden, width))
        for layer, weight, bias in zip(layers, (weight_in, weight_out), (bias_in, bias_out), strict=True):
            layer.load_state_dict({"weight": weight.T, "bias": bias[0]})
        yield nn.Sequential(layers[0], nn.GELU(), layers[1])


def test_a_residual_head_adds_its_features_to_the_mixture(head: MessiHead, features: torch.Tensor) -> None:
    residual = MessiHead(WIDTH, num_classes=5, num_experts=EXPERTS, residual=True)
    residual.load_state_dict(head.state_dict())
    plain, added = head(features), residual(features)
    torch.testing.assert_close(added.mixture, plain.mixture + features)
    torch.testing.assert_close(added.logits, head.classifier(plain.mixture + features))
    assert torch.equal(added.experts, plain.experts), "what is aligned is the same"
    assert torch.equal(added.routing, plain.routing)


@pytest.mark.parametrize(("width", "expected"), [(384, 7_091_718), (192, 1_776_390)])
def test_router_and_six_experts_have_the_papers_parameter_counts(width: int, expected: int) -> None:
    with torch.device("meta"):
        head = MessiHead(width, num_classes=7)
    assert sum(p.numel() for part in (head.router, head.experts) for p in part.parameters()) == expected
    assert sum(p.numel() for p in head.parameters()) == expected + 7 * (width + 1)


@pytest.mark.parametrize(
    ("ratio", "hidden"), [(4.0, 4 * WIDTH), (1.0, WIDTH), (0.4, 5), (0.01, 1)], ids=["paper", "narrow", "odd", "least"]
)
def test_hidden_units_are_a_multiple_of_the_width(ratio: float, hidden: int) -> None:
    head = MessiHead(WIDTH, num_classes=5, num_experts=EXPERTS, expert_ratio=ratio, load_biased=True)
    assert head.experts.weight_in.shape == (EXPERTS, WIDTH, hidden)
    weights = EXPERTS * (2 * WIDTH * hidden + hidden + WIDTH)
    assert sum(p.numel() for p in head.parameters()) == weights + EXPERTS * (WIDTH + 1) + EXPERTS + 5 * (WIDTH + 1)


@pytest.mark.parametrize("ratio", [4.0, 0.4])
def test_batched_experts_equal_a_loop_of_plain_mlps(ratio: float, features: torch.Tensor) -> None:
    torch.manual_seed(0)
    head = MessiHead(WIDTH, num_classes=5, num_experts=EXPERTS, expert_ratio=ratio)
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


@pytest.mark.parametrize("ratio", [4.0, 0.9])
def test_the_low_precision_experts_are_the_same_function(ratio: float) -> None:
    """In float32, where nothing is rounded away, value and all gradients are those of autograd."""
    torch.manual_seed(0)
    experts = Experts.initialised(8, 3, ratio=ratio)
    features, above = torch.randn(5, 8, requires_grad=True), torch.randn(3, 5, 8)
    inputs = [features, experts.weight_in, experts.bias_in, experts.weight_out, experts.bias_out]
    value = LowPrecisionExperts.apply(*inputs, torch.float32)
    torch.testing.assert_close(value, experts(features))
    found = torch.autograd.grad((value * above).sum(), inputs)
    expected = torch.autograd.grad((experts(features) * above).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("hidden", [768, 192, 58, 57])
def test_on_a_gpu_low_precision_experts_of_any_width_are_near_float32(hidden: int) -> None:
    """Also where the rows of a bfloat16 matrix are not aligned; its roundings leave an error of 0.2 to 0.4 %."""
    torch.manual_seed(0)
    experts = Experts.initialised(192, 6, ratio=hidden / 192).cuda()
    features, above = torch.randn(96, 192, device="cuda", requires_grad=True), torch.randn(6, 96, 192, device="cuda")

    def answers() -> list[torch.Tensor]:
        value = experts(features)
        return [value.detach(), *torch.autograd.grad((value * above).sum(), [features, *experts.parameters()])]

    exact = answers()
    with torch.autocast("cuda", torch.bfloat16):
        found = answers()
    assert found[0].dtype == torch.bfloat16
    for ours, wanted in zip(found, exact, strict=True):
        assert (ours.float() - wanted).norm() < 0.01 * wanted.norm()


def test_dropout_is_unbiased_and_for_training_only(features: torch.Tensor) -> None:
    """The layer after it is linear, so the mean over many draws is the output without dropout."""
    torch.manual_seed(0)
    head = MessiHead(WIDTH, num_classes=5, num_experts=EXPERTS, expert_dropout=0.5)
    draws = torch.stack([head(features).experts for _ in range(2000)]).detach()
    whole = head.eval()(features).experts
    assert torch.equal(whole, head(features).experts)
    # Five standard errors of the mean of 2,000 draws.
    assert ((draws.mean(0) - whole).abs() < 5 * draws.std(0) / math.sqrt(2000)).all()
    # Two draws differ, and at a rate of one half the variance of a dropped unit is its square.
    active = nn.functional.gelu(features @ head.experts.weight_in + head.experts.bias_in)
    variance = active.square() @ head.experts.weight_out.square()
    torch.testing.assert_close(draws.var(0), variance, rtol=0.2, atol=0)


def test_normalised_experts_have_unit_size_which_no_gradient_changes(features: torch.Tensor) -> None:
    """Outputs do not depend on the scale of the last layer, so a loss of them has no gradient in its direction."""
    torch.manual_seed(0)
    head = MessiHead(WIDTH, num_classes=5, num_experts=EXPERTS, normalised=True)
    output = head(features)
    torch.testing.assert_close(output.experts.square().mean(-1), torch.ones(EXPERTS, 7), rtol=1e-3, atol=0)
    mixed = torch.einsum("bm,mbd->bd", output.routing, output.experts)
    torch.testing.assert_close(output.mixture, mixed)
    last = [head.experts.weight_out, head.experts.bias_out]
    with torch.no_grad():
        for weight in last:
            weight.mul_(100)  # the constant that guards the division vanishes beside such outputs
    value = (head(features).experts * torch.randn(EXPERTS, 7, WIDTH)).sum()
    gradients = torch.autograd.grad(value, last)
    along = torch.stack([(one * weight).sum((1, 2)) for one, weight in zip(gradients, last, strict=True)]).sum(0)
    sizes = torch.stack([one.norm() * weight.norm() for one, weight in zip(gradients, last, strict=True)])
    assert (along.abs() < 1e-5 * sizes.sum()).all()


def test_unit_rms_equals_torchs_function_and_is_finite_at_zero() -> None:
    outputs = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = nn.functional.rms_norm(outputs, (8,), eps=1e-6)
    torch.testing.assert_close(unit_rms(outputs), expected, rtol=1e-6, atol=0)
    zero = torch.zeros(2, 4, requires_grad=True)
    unit_rms(zero).sum().backward()
    assert torch.equal(unit_rms(zero), torch.zeros(2, 4))
    assert zero.grad is not None
    assert zero.grad.isfinite().all()
    assert unit_rms(outputs.bfloat16()).dtype == torch.bfloat16


@pytest.fixture
def biased() -> MessiHead:
    torch.manual_seed(0)
    return MessiHead(WIDTH, num_classes=5, num_experts=EXPERTS, load_biased=True)


def test_the_load_bias_is_added_to_the_routers_logits_and_gets_no_gradient(
    biased: MessiHead, features: torch.Tensor
) -> None:
    assert biased.load_bias is not None
    biased.load_bias.copy_(torch.tensor([1.0, -2.0, 0.5]))
    # Without its flag too: code that freezes and thaws parameters may set it.
    biased.load_bias.requires_grad = True
    output = biased(features)
    scores = (biased.router(features) + biased.load_bias).softmax(-1)
    torch.testing.assert_close(output.routing, scores)
    output.logits.square().sum().backward()
    assert biased.load_bias.grad is None


def test_the_load_bias_moves_by_its_rate_against_the_load(biased: MessiHead) -> None:
    assert biased.load_bias is not None
    for load, expected in (([0.5, 0.3, 0.2], [-0.1, 0.1, 0.1]), ([1.0, 0.0, 0.0], [-0.2, 0.2, 0.2])):
        biased.move_load_bias(torch.tensor(load), rate=0.1)
        torch.testing.assert_close(biased.load_bias.detach(), torch.tensor(expected))


def test_the_load_bias_revives_the_experts_of_a_router_that_uses_one(biased: MessiHead, features: torch.Tensor) -> None:
    with torch.no_grad():
        biased.router.bias.copy_(torch.tensor([8.0, 0.0, 2.0]))
    assert biased(features).routing.mean(0)[0] > 0.98
    for _ in range(600):
        biased.move_load_bias(biased(features).routing.mean(0), rate=0.02)
    # A step changes a bias by 0.02, and a load by at most a quarter of that for each of two biases.
    torch.testing.assert_close(biased(features).routing.mean(0), torch.full((EXPERTS,), 1 / EXPERTS), rtol=0, atol=0.01)


def test_a_head_has_a_load_bias_only_on_request(head: MessiHead, biased: MessiHead) -> None:
    assert set(biased.state_dict()) - set(head.state_dict()) == {"load_bias"}
    assert [name for name, parameter in biased.named_parameters() if not parameter.requires_grad] == ["load_bias"]
