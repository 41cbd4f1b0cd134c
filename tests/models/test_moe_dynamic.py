"""DynMoE's layer against loops: choices, their gradient, and experts that are added and removed."""

import copy
import itertools
import math

import pytest
import torch
from timm.layers.mlp import Mlp
from torch import Tensor

from messi.models.moe_dynamic import DynamicMoeLayer

WIDTH = 10


def layer(num_experts: int = 3, max_experts: int = 5, *, apart: float = 0.1) -> DynamicMoeLayer:
    torch.manual_seed(0)
    result = DynamicMoeLayer(Mlp(WIDTH, 16), num_experts=num_experts, max_experts=max_experts)
    for parameter in (*result.experts.parameters(), result.thresholds):
        parameter.data += apart * torch.randn_like(parameter)
    return result


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@torch.no_grad()
def slow_choices(moe: DynamicMoeLayer, tokens: Tensor) -> tuple[list[list[int]], list[list[float]]]:
    """Return the experts that every token chooses, and the cosines."""
    chosen, cosines = [], []
    for token in tokens.double():
        cosines.append([float(token @ w / token.norm() / w.norm()) for w in moe.directions.double()])
        near = [e for e, c in enumerate(cosines[-1]) if sigmoid(c) > sigmoid(moe.thresholds[e].item())]
        chosen.append([e for e in near if moe.active[e]])
    return chosen, cosines


def far_from(moe: DynamicMoeLayer) -> Tensor:
    """Return a token that is not close to any active expert."""
    return -10 * moe.directions[moe.active].sum(0).detach()


def test_any_number_of_experts_is_chosen_with_equal_weights() -> None:
    moe, tokens = layer(), torch.randn(60, WIDTH)
    gates = moe.route(tokens).gates
    chosen, _ = slow_choices(moe, tokens)
    assert {len(own) for own in chosen} == {0, 1, 2, 3}
    wanted = [[1 / len(own) if e in own else 0.0 for e in range(5)] for own in chosen]
    assert gates.tolist() == [pytest.approx(row) for row in wanted]


def test_a_token_without_an_expert_gets_nothing_in_training_and_the_nearest_in_prediction() -> None:
    moe, tokens = layer(), torch.randn(60, WIDTH)
    chosen, cosines = slow_choices(moe, tokens)
    strays = [n for n, own in enumerate(chosen) if not own]
    assert not moe(tokens[None])[0, strays].any()
    gates = moe.eval().route(tokens).gates
    torch.testing.assert_close(gates.sum(-1), torch.ones(60))
    for n in strays:
        assert gates[n].argmax().item() == max(range(3), key=lambda e: cosines[n][e])
    others = [n for n in range(60) if n not in strays]
    assert torch.equal(gates[others], moe.train().route(tokens).gates[others])


def test_the_gradient_of_a_choice_is_that_of_its_margin() -> None:
    """With a = 1 for the k chosen, y = sum a v / sum a, so dy/da_e = (v_e - y) / k; others have none."""
    moe, tokens, values = layer(), torch.randn(60, WIDTH), torch.randn(5)
    directions = moe.directions.detach().requires_grad_()
    cosines = torch.nn.functional.normalize(tokens, dim=-1) @ torch.nn.functional.normalize(directions, dim=-1).mT
    thresholds = moe.thresholds.detach().requires_grad_()
    margins = cosines.sigmoid() - thresholds.sigmoid()
    gates = moe.route(tokens).gates.detach()
    mean = gates @ values
    slopes = gates * (values - mean[:, None])
    wanted = torch.autograd.grad((slopes * margins).sum(), (directions, thresholds))
    found = torch.autograd.grad((moe.route(tokens).gates @ values).sum(), (moe.directions, moe.thresholds))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
        assert not one[3:].any()


def test_choices_are_counted_only_in_training() -> None:
    moe, tokens = layer(), torch.randn(60, WIDTH)
    chosen, _ = slow_choices(moe, tokens)
    moe(tokens[None])
    assert moe.used.tolist() == [sum(e in own for own in chosen) for e in range(5)]
    strays = [token for token, own in zip(tokens, chosen, strict=True) if not own]
    assert moe.strays.item() == len(strays) > 0
    torch.testing.assert_close(moe.stray_sum, torch.stack(strays).sum(0))
    noted = [moe.used.clone(), moe.strays.clone(), moe.stray_sum.clone()]
    moe.eval()(torch.randn(1, 3, WIDTH))
    assert all(map(torch.equal, noted, [moe.used, moe.strays, moe.stray_sum]))


def transcribed(moe: DynamicMoeLayer, tokens: Tensor) -> DynamicMoeLayer:
    """Return a copy after experts were added and removed by the definition, one at a time."""
    chosen, _ = slow_choices(moe, tokens)
    moe.take()
    result = copy.deepcopy(moe)
    before = [e for e in range(5) if moe.active[e]]
    kept = [e for e in before if any(e in own for own in chosen)]
    strays = [token for token, own in zip(tokens, chosen, strict=True) if not own]
    free = [e for e in range(5) if e not in kept]
    in_use = set(kept)
    if strays and free:
        direction = torch.stack(strays).double().sum(0)
        in_use.add(free[0])
        parents = kept or before
        with torch.no_grad():
            result.directions[free[0]] = direction / direction.norm()
            result.thresholds[free[0]] = 0
            for parameter in result.experts.parameters():
                mean = sum((parameter[e].double() for e in parents), torch.zeros(())) / len(parents)
                parameter[free[0]] = mean
    result.active.copy_(torch.tensor([e in in_use for e in range(5)]))
    return result


def test_experts_are_added_and_removed_as_defined() -> None:
    """Over 40 steps of tokens around a few drifting centres, with parameters that move in between."""
    moe, seen = layer(apart=0.5), []
    generator = torch.Generator().manual_seed(0)
    for step in range(40):
        centres = 2 * torch.randn(1 + step % 12, WIDTH, generator=generator)
        tokens = centres.repeat(3, 1) + 0.3 * torch.randn(3 * len(centres), WIDTH, generator=generator)
        moe(tokens[None])
        wanted = transcribed(moe, tokens)
        moe.adapt()
        for name, value in moe.state_dict().items():
            torch.testing.assert_close(value, wanted.state_dict()[name], msg=f"{name} after step {step}")
        seen.append(int(moe.active.sum()))
        with torch.no_grad():
            moe.directions.add_(torch.randn(moe.directions.shape, generator=generator), alpha=0.3)
            moe.thresholds.add_(0.1)
    steps = list(itertools.pairwise(seen))
    assert any(after > before for before, after in steps)
    assert any(after < before for before, after in steps)
    assert len(set(seen)) >= 4
    assert min(seen) >= 1


def test_nothing_changes_while_every_expert_is_used_and_every_token_has_one() -> None:
    moe = layer()
    tokens = moe.directions[:3].detach() + 1e-3 * torch.randn(3, WIDTH)
    moe(tokens[None])
    moe.take()
    before = copy.deepcopy(moe.state_dict())
    moe.adapt()
    assert all(torch.equal(value, before[name]) for name, value in moe.state_dict().items())


def test_a_new_expert_is_chosen_by_the_tokens_that_had_none() -> None:
    moe = layer()
    token = far_from(moe)
    near = moe.directions[:3].detach()
    moe(torch.cat([near, token[None]])[None])
    moe.adapt()
    assert moe.active.tolist() == [True] * 4 + [False]
    assert moe.route(token[None]).gates.tolist() == [[0.0, 0.0, 0.0, 1.0, 0.0]]


def test_if_no_token_has_an_expert_one_is_made_from_those_in_use() -> None:
    moe = layer()
    before = copy.deepcopy(moe.experts)
    moe(far_from(moe).expand(1, 4, -1))
    moe.adapt()
    assert moe.active.tolist() == [True] + [False] * 4
    torch.testing.assert_close(moe.experts.weight_in[0], before.weight_in[:3].mean(0))


def test_no_expert_is_added_if_all_slots_are_in_use() -> None:
    moe = layer(num_experts=5)
    with torch.no_grad():
        moe.directions.copy_(torch.eye(WIDTH)[:5])
    moe(torch.cat([moe.directions.detach(), -torch.ones(1, WIDTH)])[None])
    assert moe.strays.item() == 1
    moe.take()
    before = copy.deepcopy(moe.state_dict())
    moe.adapt()
    assert all(torch.equal(value, before[name]) for name, value in moe.state_dict().items())


def test_initially_the_layer_is_the_mlp_for_tokens_with_an_expert() -> None:
    torch.manual_seed(0)
    mlp = Mlp(WIDTH, 16)
    moe, x = DynamicMoeLayer(mlp, num_experts=6, max_experts=8).eval(), torch.randn(2, 5, WIDTH)
    torch.testing.assert_close(moe(x), mlp(x))
