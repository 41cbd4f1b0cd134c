"""GMoE's layer: experts, cosine router and mixture, against loops over tokens."""

import math
from typing import Any

import pytest
import torch
from timm.layers.mlp import Mlp
from torch import Tensor, nn
from torch.nn import functional

from messi.models.experts import Experts, is_plain
from messi.models.fused.experts import LowPrecisionExperts
from messi.models.moe_layers import CosineMoeLayer, CosineRouter

WIDTH, HIDDEN = 12, 20


def mlp() -> Mlp:
    torch.manual_seed(0)
    return Mlp(WIDTH, HIDDEN)


def layer(*, apart: float = 0.0, **settings: Any) -> CosineMoeLayer:
    """Return a layer whose experts differ by ``apart``."""
    result = CosineMoeLayer(mlp(), num_experts=4, **settings)
    for parameter in result.experts.parameters():
        parameter.data += apart * torch.randn_like(parameter)
    return result


def expert(experts: Experts, number: int, token: Tensor) -> Tensor:
    """Apply one expert to one token, from the definition."""
    inner = token @ experts.weight_in[number] + experts.bias_in[number, 0]
    return functional.gelu(inner) @ experts.weight_out[number] + experts.bias_out[number, 0]


def test_experts_start_as_the_mlp() -> None:
    plain = mlp()
    experts, tokens = Experts.copies(plain, 3), torch.randn(5, WIDTH)
    for output in experts(tokens):
        torch.testing.assert_close(output, plain(tokens))
    assert all(parameter.is_contiguous() for parameter in experts.parameters())


def test_experts_equal_the_low_precision_function() -> None:
    experts, tokens = layer(apart=0.1).experts, torch.randn(5, WIDTH)
    low = LowPrecisionExperts.apply(tokens, *experts.parameters(), torch.float32)
    torch.testing.assert_close(low, experts(tokens))


def test_experts_have_dropout_only_in_training() -> None:
    torch.manual_seed(0)
    experts, tokens = Experts.copies(mlp(), 2, dropout=0.5), torch.randn(5, WIDTH)
    assert not torch.equal(experts(tokens), experts(tokens))
    torch.testing.assert_close(experts.eval()(tokens)[0], mlp()(tokens))


def test_an_expert_is_replaced_by_the_mean_of_others_and_no_other_is() -> None:
    experts = layer(apart=0.1).experts
    before = {name: parameter.detach().clone() for name, parameter in experts.named_parameters()}
    experts.replace(torch.tensor([False, True, False, False]), torch.tensor([True, False, True, False]))
    for name, parameter in experts.named_parameters():
        torch.testing.assert_close(parameter[1], (before[name][0] + before[name][2]) / 2)
        assert torch.equal(parameter[[0, 2, 3]], before[name][[0, 2, 3]])


@pytest.mark.parametrize(
    ("other", "plain"),
    [
        (Mlp(4, 8), True),
        (Mlp(4, 8, act_layer=nn.ReLU), False),
        (Mlp(4, 8, bias=False), False),
        (Mlp(4, 8, norm_layer=nn.LayerNorm), False),
        (Mlp(4, 8, use_conv=True), False),
        (nn.Linear(4, 4), False),
        (None, False),
    ],
)
def test_only_a_plain_mlp_is_copied(other: Any, plain: bool) -> None:
    assert is_plain(other) is plain


@torch.no_grad()
def slow_route(
    router: CosineRouter, tokens: Tensor, noise: Tensor, top_k: int
) -> tuple[list[list[float]], list[float]]:
    """Return the gates and thresholds of tokens, one after the other in float64."""
    weight, bias = router.projection.weight.double(), router.projection.bias.double()
    vectors, scale = router.vectors.double(), math.exp(min(router.log_scale.item(), math.log(100)))
    gates, thresholds = [], []
    for token, own_noise in zip(tokens.double(), noise.double(), strict=True):
        inner = weight @ token + bias
        cosines = [inner @ v / inner.norm() / v.norm() for v in vectors.T]
        noisy = [float(scale * c + n) for c, n in zip(cosines, own_noise, strict=True)]
        chosen = sorted(range(len(noisy)), key=lambda e: -noisy[e])[:top_k]
        chances = [math.exp(value) / sum(map(math.exp, noisy)) for value in noisy]
        total = sum(chances[e] for e in chosen) if top_k > 1 else 1.0
        gates.append([chances[e] / total if e in chosen else 0.0 for e in range(len(noisy))])
        thresholds.append(min(noisy[e] for e in chosen))
    return gates, thresholds


@pytest.mark.parametrize("top_k", [1, 2, 4])
@pytest.mark.parametrize("training", [True, False])
def test_the_router_matches_loops_in_float64(top_k: int, training: bool) -> None:
    torch.manual_seed(0)
    router = CosineRouter(WIDTH, 4, top_k=top_k, noise=1.5).train(training)
    tokens = torch.randn(9, WIDTH)
    torch.manual_seed(1)
    routing = router(tokens)
    torch.manual_seed(1)
    noise = torch.randn(9, 4) * 1.5 / 4 if training else torch.zeros(9, 4)
    gates, thresholds = slow_route(router, tokens, noise, top_k)
    torch.testing.assert_close(routing.gates, torch.tensor(gates), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(routing.thresholds, torch.tensor(thresholds)[:, None], rtol=1e-5, atol=1e-6)
    assert ((routing.gates > 0).sum(-1) == top_k).all()


def test_the_router_starts_at_twice_the_cosine_and_ends_at_a_hundred_times() -> None:
    torch.manual_seed(0)
    router, tokens = CosineRouter(WIDTH, 4, top_k=1, noise=0.0), torch.randn(9, WIDTH)
    cosines = router(tokens).logits / 2
    assert cosines.abs().max() <= 1
    router.log_scale.data.fill_(50)
    torch.testing.assert_close(router(tokens).logits, 100 * cosines)


@pytest.mark.parametrize("top_k", [1, 2])
def test_the_layer_is_the_gated_sum_of_the_chosen_experts(top_k: int) -> None:
    moe = layer(apart=0.1, top_k=top_k).eval()
    x = torch.randn(2, 5, WIDTH)
    result = moe(x)
    gates = moe.take().gates
    for token, found, own in zip(x.flatten(0, 1), result.flatten(0, 1), gates, strict=True):
        wanted = sum((own[e] * expert(moe.experts, e, token) for e in range(4)), torch.zeros(WIDTH))
        torch.testing.assert_close(found, wanted)


def test_initially_a_token_gets_the_mlp_times_its_gate() -> None:
    moe, x = layer().eval(), torch.randn(2, 5, WIDTH)
    result = moe(x)
    gate = moe.take().gates.sum(-1).view(2, 5, 1)
    torch.testing.assert_close(result, gate * mlp()(x))
    assert (gate < 1).all()


def test_a_token_does_not_depend_on_the_others() -> None:
    moe, x = layer(apart=0.1).eval(), torch.randn(3, 5, WIDTH)
    alone = torch.cat([moe(token.view(1, 1, WIDTH)) for token in x.flatten(0, 1)])
    torch.testing.assert_close(moe(x).flatten(0, 1), alone.flatten(0, 1))


def test_an_expert_that_no_token_chose_has_no_gradient_and_the_router_has_one() -> None:
    moe = layer(apart=0.1)
    moe(torch.randn(1, 2, WIDTH)).square().sum().backward()
    chosen = (moe.take().gates > 0).any(0)
    assert 1 <= chosen.sum() <= 2
    for parameter in moe.experts.parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad.abs().sum((1, 2)) > 0, chosen)
    for parameter in moe.router.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


def test_a_routing_is_returned_once() -> None:
    moe = layer()
    moe(torch.randn(1, 2, WIDTH))
    moe.take()
    with pytest.raises(RuntimeError, match="no forward pass"):
        moe.take()


def test_router_and_mixture_stay_in_float32_under_autocast() -> None:
    moe, x = layer(apart=0.1).eval(), torch.randn(2, 5, WIDTH)
    moe(x)
    exact = moe.take()
    with torch.autocast("cpu", torch.bfloat16):
        result = moe(x)
    assert result.dtype == torch.float32
    assert torch.equal(moe.take().gates, exact.gates)
