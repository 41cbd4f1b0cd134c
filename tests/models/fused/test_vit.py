"""The fused vision transformer against timm's, in float64; without a GPU, Triton's interpreter runs its kernels."""

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
    gelu,
    gelu_backward,
    gelu_parts,
    norm_parts,
    patches,
    sum_parts,
)
from messi.models.lora import LowRank, adapt, merge

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


def test_features_and_all_gradients_on_a_cpu_match_timm() -> None:
    model, images, above = network(48).cpu(), rand(2, 3, 48, 48).cpu(), rand(2, 48, seed=2).cpu()
    features = vit.encode_on_cpu(model, images)
    grads = torch.autograd.grad((features * above).sum(), list(model.parameters()))
    exact = model.double()(images.double())
    expected = torch.autograd.grad((exact * above).sum(), list(model.parameters()))
    assert relative_error(features, exact) < ROUNDING
    for (name, _), grad, wanted in zip(model.named_parameters(), grads, expected, strict=True):
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
    assert vit.is_plain(model)
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
