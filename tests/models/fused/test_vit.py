"""The fused vision transformer against timm's, in float64; without a GPU, Triton's interpreter runs its kernels."""

from typing import Any

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor
from torch.nn import functional

from messi.models.fused import vit
from messi.models.fused.attention_kernels import attend, attend_backward, token_parts
from messi.models.fused.vit_backward import Backward
from messi.models.fused.vit_forward import Forward
from messi.models.fused.vit_kernels import (
    add_norm,
    add_norm_backward,
    gelu,
    gelu_backward,
    gelu_parts,
    norm_parts,
    patches,
    sum_parts,
)
from messi.models.moe_layers import CosineMoeLayer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROUNDING = 1e-5
"""Relative; a few hundred roundings of float32."""


def relative_error(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).norm() / expected.norm())


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def network(size: int, **options: Any) -> VisionTransformer:
    """Return a small network in which no parameter is zero, so that every gradient is tested."""
    shape: dict[str, Any] = {
        "img_size": size,
        "patch_size": 8,
        "embed_dim": 48,
        "depth": 2,
        "num_heads": 3,
        "num_classes": 0,
    }
    model = VisionTransformer(**{**shape, **options})
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.ndim > 1 else 0.5, std=0.2, generator=generator)
    return model.to(DEVICE)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deit_tiny_patch16_224", True),
        ("deit_small_patch16_224", True),
        ("vit_small_patch16_224", True),
        ("deit_tiny_distilled_patch16_224", False),  # a second token
        ("vit_base_patch16_clip_224", False),  # a norm before the blocks
        ("deit3_small_patch16_224", False),  # scaled layers
        ("vit_small_patch14_reg4_dinov2", False),
        ("resnet18", False),
    ],
)  # fmt: skip
def test_only_plain_transformers_are_replaced(name: str, expected: bool) -> None:
    model = timm.create_model(name, num_classes=0)
    vit.fuse(model)
    assert isinstance(model, vit.FusedVisionTransformer) is expected


@pytest.mark.parametrize(
    "options",
    [
        {"drop_rate": 0.1},
        {"drop_path_rate": 0.1},
        {"class_token": False, "global_pool": "avg"},
        {"qk_norm": True},
        {"global_pool": "avg"},
        {"reg_tokens": 1},
        {"pre_norm": True},
        {"depth": 1},
    ],
)
def test_networks_with_parts_that_the_kernels_leave_out_are_not_plain(options: dict[str, object]) -> None:
    assert not vit.is_plain(network(16, **options))


# 5 tokens fit into the small block, 37 need one block, 82 one and a rest of more than 16, 145 two and a rest of 17.
@pytest.mark.parametrize("size", [16, 48, 72, 96])
def test_features_and_all_gradients_match_timm(size: int) -> None:
    model, images, above = network(size), rand(2, 3, size, size), rand(2, 48, seed=2)
    assert vit.is_plain(model)
    features = vit.encode(model, images, dtype=torch.float32)
    grads = torch.autograd.grad((features * above).sum(), list(model.parameters()))
    exact = model.double()(images.double())
    expected = torch.autograd.grad((exact * above).sum(), list(model.parameters()))
    assert relative_error(features, exact) < ROUNDING
    for (name, _), grad, wanted in zip(model.named_parameters(), grads, expected, strict=True):
        assert grad.shape == wanted.shape
        assert relative_error(grad, wanted) < ROUNDING, name


@pytest.mark.parametrize("places", [(0,), (1,), (3,), (1, 2), (0, 2), (0, 1, 2, 3)])
def test_blocks_with_experts_match_timm(places: tuple[int, ...]) -> None:
    model, images, above = network(16, depth=4), rand(2, 3, 16, 16), rand(2, 48, seed=2)
    blocks: Any = model.blocks
    for place in places:
        experts = CosineMoeLayer(blocks[place].mlp, num_experts=3, top_k=2, noise=0.0)
        blocks[place].mlp = experts.to(DEVICE)
        for number, parameter in enumerate(experts.parameters()):
            parameter.data += 0.1 * rand(parameter.numel(), seed=number).view(parameter.shape)
    vit.fuse(model)
    assert isinstance(model, vit.FusedVisionTransformer)
    features = vit.encode(model, images, dtype=torch.float32)
    routed = sum((blocks[place].mlp.take().logits.square().sum() for place in places), torch.zeros((), device=DEVICE))
    grads = torch.autograd.grad((features * above).sum() + routed, list(model.parameters()))
    exact = VisionTransformer.forward(model, images)  # in float32, as routers always are
    routed = sum((blocks[place].mlp.take().logits.square().sum() for place in places), torch.zeros((), device=DEVICE))
    expected = torch.autograd.grad((exact * above).sum() + routed, list(model.parameters()))
    assert relative_error(features, exact) < 3 * ROUNDING
    for (name, _), grad, wanted in zip(model.named_parameters(), grads, expected, strict=True):
        assert relative_error(grad, wanted) < 3 * ROUNDING, name


@pytest.mark.parametrize("trained", [1, 2, 3, 4])
def test_frozen_blocks_at_the_beginning_get_no_gradients(trained: int) -> None:
    model, images, above = network(16, depth=4), rand(2, 3, 16, 16), rand(2, 48, seed=2)
    every = vit.encode(model, images, dtype=torch.float32)
    whole = torch.autograd.grad((every * above).sum(), list(model.parameters()))
    expected = dict(zip([name for name, _ in model.named_parameters()], whole, strict=True))
    part = ("norm", *(f"blocks.{number}." for number in range(4 - trained, 4)))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(part))
    features = vit.encode(model, images, dtype=torch.float32)
    assert torch.equal(features, every)
    passed = Forward(model, images, torch.float32, keep=True)
    found = Backward(passed).run(torch.zeros_like(passed.run())) if trained < 4 else {}  # all blocks: the embedding too
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    assert not set(found) & set(frozen), "nothing is computed for them"
    (features * above).sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        if parameter.grad is not None:
            assert relative_error(parameter.grad, expected[name]) < ROUNDING, name


def test_without_gradients_the_features_are_the_same_bits() -> None:
    model, images = network(48), rand(2, 3, 48, 48)
    features = vit.encode(model, images, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(vit.encode(model, images, dtype=torch.float32), features)


def test_patches_are_rows_after_a_row_of_zeros() -> None:
    images = rand(2, 3, 6, 8)
    rows = patches(images, (2, 4), torch.float32)
    assert not rows[:, 0].any()
    expected = functional.unfold(images, (2, 4), stride=(2, 4)).mT
    assert torch.equal(rows[:, 1:], expected)


def test_gelu_and_its_gradient_are_exact_to_two_roundings() -> None:
    """The error is absolute, because values close to zero are as small as the error of erf there."""
    x = torch.linspace(-12, 12, 4001, device=DEVICE).view(1, -1)
    exact = x.double().requires_grad_()
    value = functional.gelu(exact)
    (grad,) = torch.autograd.grad(value.sum(), exact)
    result, parts = torch.empty_like(x), torch.empty(gelu_parts(*x.shape), x.shape[1], device=DEVICE)
    gelu(x, result)
    assert (result - value).abs().max() < 1e-6
    gelu_backward(torch.ones_like(x), x, parts)
    assert (x - grad).abs().max() < 1e-6


def test_bias_gradient_of_gelu_is_the_sum_over_rows() -> None:
    x, above = rand(70, 300), rand(70, 300, seed=1)
    parts = torch.empty(1, gelu_parts(70, 300), 300, device=DEVICE)
    gelu_backward(above, x, parts[0])
    assert relative_error(sum_parts(parts)[0], x.sum(0)) < ROUNDING


def norm_layer(weight: Tensor, shift: Tensor) -> torch.nn.LayerNorm:
    norm = torch.nn.LayerNorm(len(weight), eps=1e-6, device=DEVICE)
    norm.load_state_dict({"weight": weight, "bias": shift})
    return norm


@pytest.mark.parametrize("rows", [1, 6, 50])
def test_sum_and_norm(rows: int) -> None:
    x, branch, bias = rand(rows, 48) + 100, rand(rows, 48, seed=1), rand(48, seed=2)
    weight, shift = rand(48, seed=3), rand(48, seed=4)
    total_grad, normed_grad = rand(rows, 48, seed=5), rand(rows, 48, seed=6)
    exact = [t.double().requires_grad_() for t in (x, bias, weight, shift)]
    total = exact[0] + branch + exact[1]
    normed = functional.layer_norm(total, (48,), exact[2], exact[3], 1e-6)
    expected = torch.autograd.grad((total * total_grad + normed * normed_grad).sum(), exact)
    found_normed, grad = torch.empty_like(branch), torch.empty_like(branch)
    found, statistics = add_norm(x, branch, bias, norm_layer(weight, shift), found_normed)
    parts = torch.empty(1, norm_parts(rows, 48), 3, 48, device=DEVICE)
    add_norm_backward(total_grad, normed_grad, found, statistics, weight, grad, parts[0])
    weight_grad, shift_grad, bias_grad = sum_parts(parts)[0]
    assert relative_error(found, total) < ROUNDING
    assert relative_error(found_normed, normed) < ROUNDING
    for one, other in zip((grad, bias_grad, weight_grad, shift_grad), expected, strict=True):
        assert relative_error(one, other) < ROUNDING


def test_a_table_is_added_to_every_image() -> None:
    table, branch, ones = rand(5, 32), rand(15, 32, seed=1), torch.ones(32, device=DEVICE)
    total, _ = add_norm(table, branch, None, norm_layer(ones, ones), torch.empty_like(branch))
    assert torch.equal(total, table.repeat(3, 1) + branch)


@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (1, 70), (16, 16), (17, 17), (64, 64), (65, 65), (80, 80)])
def test_attention(queries: int, keys: int) -> None:
    batch, heads, depth = 2, 2, 16
    query = rand(batch, queries, heads, depth)
    key, value = rand(batch, keys, 2, heads, depth, seed=1).unbind(2)
    above = rand(batch, queries, heads, depth, seed=3)
    exact = [t.double().requires_grad_() for t in (query, key, value)]
    heads_first = [t.transpose(1, 2) for t in exact]
    wanted = functional.scaled_dot_product_attention(heads_first[0], heads_first[1], heads_first[2]).transpose(1, 2)
    expected = torch.autograd.grad((wanted * above).sum(), exact)
    result = torch.empty_like(query)
    log_sums = attend(query, key, value, result)
    both = torch.empty(batch, keys, 2, heads, depth, device=DEVICE)
    into = (torch.empty_like(query), both[:, :, 0], both[:, :, 1])
    parts = torch.empty(1, token_parts(batch, keys), 3, heads, depth, device=DEVICE)
    attend_backward(above, query, key, value, result, log_sums, into, parts[0])
    assert relative_error(result, wanted) < ROUNDING
    for grad, other in zip(into, expected, strict=True):
        assert relative_error(grad, other) < ROUNDING
    for total, other in zip(sum_parts(parts)[0], expected, strict=True):
        assert (total - other.sum((0, 1))).abs().max() < ROUNDING * other.abs().sum((0, 1)).max()
