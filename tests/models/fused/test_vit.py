"""The fused vision transformer against timm's, in float64; without a GPU, Triton's interpreter runs its kernels."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional

from messi.models.fused import vit
from messi.models.fused.attention_kernels import attend, attend_backward, token_parts
from messi.models.fused.vit_backward import Backward
from messi.models.fused.vit_forward import Forward
from messi.models.fused.vit_kernels import (
    add_norm,
    add_norm_backward,
    norm_parts,
    patches,
    sum_parts,
)
from messi.models.fused.vit_weights import is_plain, read
from messi.models.lora import LowRank, adapt, merge
from messi.models.moe_layers import CosineMoeLayer

from .common import DEVICE, ROUNDING, rand, relative_error


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
        ("vit_base_patch16_clip_224", True),  # a norm before the blocks
        ("vit_base_patch16_clip_quickgelu_224", True),
        ("deit3_small_patch16_224", True),  # scaled layers
        ("vit_small_patch14_dinov2", True),
        ("vit_small_patch14_reg4_dinov2", True),  # registers
        ("vit_base_patch16_siglip_224", False),  # attention instead of a class token
        ("vit_small_patch16_dinov3", False),  # rotated positions
        ("vit_giant_patch14_dinov2", False),  # gated MLPs
        ("resnet18", False),
    ],
)  # fmt: skip
def test_transformers_with_supported_parts_are_replaced(name: str, expected: bool) -> None:
    with torch.device("meta"):
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
        {"scale_mlp_norm": True},
        {"proj_bias": False},
        {"qkv_bias": False},
        {"act_layer": "gelu_tanh"},
        {"final_norm": False},
        {"pos_embed": "none"},
        {"dynamic_img_size": True},
        {"patch_drop_rate": 0.1},
        {"num_classes": 2},
        {"depth": 1},
    ],
)
def test_networks_with_parts_that_the_kernels_leave_out_are_not_plain(options: dict[str, object]) -> None:
    assert not is_plain(network(16, **options))


# 5 tokens fit into the small block, 37 need one block, 82 one and a rest of more than 16, 145 two and a rest of 17.
@pytest.mark.parametrize("size", [16, 48, 72, 96])
def test_features_and_all_gradients_match_timm(size: int) -> None:
    assert_same(network(size), in_float32)


PARTS: dict[str, dict[str, Any]] = {
    "registers": {"reg_tokens": 4},
    "positions of patches only": {"reg_tokens": 2, "no_embed_class": True},
    "scaled layers": {"init_values": 0.1},
    "norm before the blocks": {"pre_norm": True},
    "quick GELU": {"act_layer": "quick_gelu"},
    "DINOv2": {"reg_tokens": 4, "no_embed_class": True, "init_values": 0.1, "patch_size": 7, "img_size": 21},
    "CLIP": {"pre_norm": True, "act_layer": "quick_gelu", "norm_layer": partial(nn.LayerNorm, eps=1e-5)},
}


@pytest.mark.parametrize("part", PARTS)
def test_every_supported_part_matches_timm(part: str) -> None:
    assert_same(network(16, **PARTS[part]), in_float32)


@pytest.mark.parametrize("part", ["DeiT", *PARTS])
def test_features_and_all_gradients_on_a_cpu_match_timm(part: str) -> None:
    assert_same(network(16, **PARTS.get(part, {})).cpu(), vit.encode_on_cpu)


def test_low_rank_changes_train_through_the_kernels() -> None:
    model = network(16, **PARTS["scaled layers"])
    adapt(model, 2)
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, LowRank):
            nn.init.normal_(module.up, std=0.2)
    assert_same(model, in_float32)


def in_float32(model: VisionTransformer, images: Tensor) -> Tensor:
    return vit.encode(model, images, dtype=torch.float32)


def assert_same(model: Any, encode: Callable[[VisionTransformer, Tensor], Tensor]) -> None:
    """Compare the features and the gradients of all parameters with those of timm in float64."""
    assert is_plain(model)
    device, size = model.pos_embed.device, model.patch_embed.img_size[0]
    images, above = rand(2, 3, size, size).to(device), rand(2, 48, seed=2).to(device)
    names, parameters = zip(*[(n, p) for n, p in model.named_parameters() if p.requires_grad], strict=True)
    features = encode(model, images)
    grads = torch.autograd.grad((features * above).sum(), parameters)
    exact = model.double()(images.double())
    expected = torch.autograd.grad((exact * above).sum(), parameters)
    assert relative_error(features, exact) < ROUNDING
    for name, grad, wanted in zip(names, grads, expected, strict=True):
        assert grad.shape == wanted.shape
        assert relative_error(grad, wanted) < ROUNDING, name


def test_on_a_cpu_the_first_token_attends_with_weights_that_low_rank_changes_were_merged_into() -> None:
    """Merging registers the weight of a layer again, after its bias."""
    model, images = network(48).cpu(), rand(2, 3, 48, 48).cpu()
    before = vit.encode_on_cpu(model, images)
    torch.manual_seed(0)
    adapt(model, 2)
    for module in model.modules():
        if isinstance(module, LowRank):
            nn.init.normal_(module.up, std=1.0)
    expected = model(images)
    assert relative_error(expected, before) > 0.1
    merge(model)
    assert is_plain(model)
    assert relative_error(vit.encode_on_cpu(model, images), expected) < ROUNDING


def test_a_replaced_block_can_be_compiled() -> None:
    model: Any = network(48).cpu()
    vit.fuse(model)
    tokens = rand(2, 10, 48).cpu()
    compiled: Any = torch.compile(model.blocks[0], backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens), model.blocks[0](tokens))


def test_in_bfloat16_on_a_cpu_results_are_as_accurate_as_timm() -> None:
    model: Any
    model, images, above = network(48).cpu(), rand(8, 3, 48, 48).cpu(), rand(8, 48, seed=2).cpu()

    def results() -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            features = model(images)
        grads = torch.autograd.grad((features.float() * above).sum(), list(model.parameters()))
        return features, torch.cat([grad.flatten() for grad in grads])

    theirs = results()
    vit.fuse(model)
    assert all(block.attn.fused_attn for block in model.blocks)
    with torch.autocast("cpu", torch.bfloat16):
        assert not any(block.attn.fused_attn for block in model.blocks)
    ours = results()
    exact = model.double()(images.double())
    grads = torch.autograd.grad((exact * above).sum(), list(model.parameters()))
    for found, other, wanted in zip(ours, theirs, (exact, torch.cat([one.flatten() for one in grads])), strict=True):
        assert not torch.equal(found, other)  # another order of operations
        # As in test_gpu.py: rounding errors differ by chance.
        assert relative_error(found, wanted) < 1.3 * relative_error(other, wanted)


@pytest.mark.parametrize("places", [(0,), (1,), (3,), (1, 2), (0, 2), (0, 1, 2, 3)])
def test_blocks_with_experts_match_timm(places: tuple[int, ...]) -> None:
    model, images, above = network(16, depth=4), rand(2, 3, 16, 16), rand(2, 48, seed=2)
    blocks: Any = model.blocks
    for place in places:
        experts = CosineMoeLayer(blocks[place].mlp, num_experts=3, top_k=2, noise=0.0)
        blocks[place].mlp = experts.to(DEVICE)
        for number, parameter in enumerate(experts.parameters()):
            parameter.data += 0.1 * rand(*parameter.shape, seed=number)
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
    passed = Forward(read(model), (images, None), (2, 5, 48), torch.float32, keep=True)
    found = Backward(passed).run(*map(torch.zeros_like, passed.run())) if trained < 4 else {}  # else the embedding, too
    frozen = [tensor for tensor in passed.weights.tensors() if not tensor.requires_grad]
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
    longer = patches(images, (2, 4), torch.float32, prefix=3, length=32)
    assert torch.equal(longer, functional.pad(expected, (0, 8, 3, 0)))


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
    half = rand(rows, 48, seed=7)
    rest = total_grad - half
    add_norm_backward(half, rest, normed_grad, found, statistics, weight, grad, parts[0])
    assert not rest.any()  # float32 loses nothing
    weight_grad, shift_grad, bias_grad = sum_parts(parts)[0]
    assert relative_error(found, total) < ROUNDING
    assert relative_error(found_normed, normed) < ROUNDING
    for one, other in zip((grad, bias_grad, weight_grad, shift_grad), expected, strict=True):
        assert relative_error(one, other) < ROUNDING


def test_a_gradient_in_bfloat16_and_its_rest_are_as_accurate_as_float32() -> None:
    x, branch, ones = rand(9, 48), rand(9, 48, seed=1), torch.ones(48, device=DEVICE)
    total, statistics = add_norm(x, branch, None, norm_layer(ones, ones), torch.empty_like(branch))
    parts = torch.empty(norm_parts(9, 48), 3, 48, device=DEVICE)
    above, rest = rand(9, 48, seed=2), torch.zeros(9, 48, device=DEVICE)
    exact, grad = torch.empty_like(above), torch.empty_like(above, dtype=torch.bfloat16)
    add_norm_backward(above, rest, above, total, statistics, ones, exact, parts)
    rest = rest.bfloat16()
    add_norm_backward(above, rest, above, total, statistics, ones, grad, parts)
    # A GPU rounds to the nearest number, the interpreter towards zero.
    assert ((grad.float() - exact).abs() <= 2.0**-7 * exact.abs()).all()
    assert ((grad.float() + rest.float() - exact).abs() <= 2.0**-14 * exact.abs()).all()


def test_a_norm_without_a_second_term() -> None:
    x, weight, shift = rand(6, 48), rand(48, seed=3), rand(48, seed=4)
    normed = torch.empty_like(x)
    total, _ = add_norm(x, None, None, norm_layer(weight, shift), normed)
    assert torch.equal(total, x)
    assert (
        relative_error(normed, functional.layer_norm(x.double(), (48,), weight.double(), shift.double(), 1e-6))
        < ROUNDING
    )


def test_a_table_is_added_to_every_image() -> None:
    table, branch, ones = rand(5, 32), rand(15, 32, seed=1), torch.ones(32, device=DEVICE)
    total, _ = add_norm(table, branch, None, norm_layer(ones, ones), torch.empty_like(branch))
    assert torch.equal(total, table.repeat(3, 1) + branch)


@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 5), (1, 70), (16, 16), (17, 17), (64, 64), (65, 65), (80, 80), (130, 130)]
)
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
