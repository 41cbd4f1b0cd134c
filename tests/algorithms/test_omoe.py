"""OMoE differs from GMoE in the number of experts per token, their orthogonal outputs and the balance term."""

import torch

from messi.algorithms.gmoe import importance_variation
from messi.models.moe_orthogonal import orthogonal_gates
from messi.models.moe_vit import take_routings

from .moe_toys import fit, make, separable


def test_only_the_importance_is_balanced() -> None:
    algorithm, batch = make("omoe", moe_blocks=(1, 4), balance_weight=0.3), separable(0)
    torch.manual_seed(1)
    term = algorithm.loss(batch)["bal"]
    torch.manual_seed(1)
    algorithm.encoder(batch.inputs)
    first, second = (importance_variation(one.logits) for one in take_routings(algorithm.encoder))
    torch.testing.assert_close(term, 0.3 * (first + second))


def test_the_layer_mixes_orthogonal_outputs() -> None:
    algorithm = make("omoe")
    fit(algorithm, 3)
    layer, x = algorithm.eval().encoder.network.blocks[4].mlp, torch.randn(2, 5, 64)
    result = layer(x).flatten(0, 1)
    gates, outputs = layer.take().gates, layer.experts(x.flatten(0, 1))
    assert ((gates > 0).sum(-1) == 2).all()
    torch.testing.assert_close(result, torch.einsum("ne,enw->nw", orthogonal_gates(gates, outputs), outputs))
    assert not torch.allclose(result, torch.einsum("ne,enw->nw", gates, outputs), rtol=1e-2)


def test_initially_a_token_gets_the_mlp_times_the_gate_of_its_first_expert() -> None:
    """All experts are equal, so the second adds nothing at first, but it receives a gradient."""
    algorithm, x = make("omoe").eval(), torch.randn(2, 5, 64)
    layer = algorithm.encoder.network.blocks[4].mlp
    result = layer(x).flatten(0, 1)
    gates, outputs = layer.take().gates, layer.experts(x.flatten(0, 1))
    first = gates.gather(-1, (gates > 0).long().argmax(-1, keepdim=True))
    torch.testing.assert_close(result, first * outputs[0], rtol=1e-4, atol=1e-4)
    result.square().sum().backward()
    assert layer.experts.weight_out.grad.isfinite().all()


def test_a_dense_gate_uses_all_experts() -> None:
    routing = make("omoe", top_k=6).eval().predict(separable(0).inputs).routing
    assert (routing > 0).all()


def test_experts_become_different() -> None:
    """They start as copies; what a second expert adds is orthogonal to the first, so they move apart."""
    algorithm = make("omoe")
    fit(algorithm, 10)
    weights = algorithm.encoder.network.blocks[4].mlp.experts.weight_in
    assert all(not torch.equal(weights[0], other) for other in weights[1:])
