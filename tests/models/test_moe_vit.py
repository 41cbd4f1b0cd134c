"""Where experts are placed in a vision transformer, and the resulting number of parameters."""

import dataclasses
from typing import Any

import pytest
import torch
from timm.layers.drop import DropPath
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from messi.algorithms.common.base import ALGORITHMS, build
from messi.core.batch import Task
from messi.core.errors import MessiError
from messi.models.encoder import Encoder, EncoderConfig
from messi.models.fused.vit import FusedVisionTransformer
from messi.models.moe_layers import CosineMoeLayer, MoeLayer
from messi.models.moe_vit import default_blocks, image_routing, place_experts, take_routings

TEST_VIT = EncoderConfig(backbone="test_vit", pretrained=False)
DEIT_S = 21_665_664
"""DeiT-S without its classifier."""
FFN = 2 * 384 * 1536 + 1536 + 384


def experts(mlp: nn.Module) -> MoeLayer:
    return CosineMoeLayer(mlp, num_experts=3)


def places(encoder: Encoder) -> list[int]:
    network: Any = encoder.network
    return [number for number, block in enumerate(network.blocks) if isinstance(block.mlp, MoeLayer)]


@pytest.mark.parametrize(("depth", "blocks"), [(12, (8, 10)), (24, (16, 18, 20, 22)), (6, (4,)), (8, (6,)), (1, (0,))])
def test_every_second_block_of_the_last_third_gets_experts(depth: int, blocks: tuple[int, ...]) -> None:
    assert default_blocks(depth) == blocks


@pytest.mark.parametrize(("given", "wanted"), [((), [4]), ((0, 5), [0, 5])])
def test_experts_are_placed_in_the_requested_blocks(given: tuple[int, ...], wanted: list[int]) -> None:
    encoder = TEST_VIT.build((3, 160, 160))
    place_experts(encoder, experts, method="gmoe", blocks=given)
    assert places(encoder) == wanted


@pytest.mark.parametrize("blocks", [(6,), (-1,), (4, 4)])
def test_missing_blocks_are_refused(blocks: tuple[int, ...]) -> None:
    with pytest.raises(MessiError, match="moe_blocks must be distinct numbers from 0 to 5"):
        place_experts(TEST_VIT.build((3, 160, 160)), experts, method="gmoe", blocks=blocks)


@pytest.mark.parametrize("name", ["gmoe", "omoe", "dynmoe"])
@pytest.mark.parametrize(
    ("backbone", "shape"), [("mlp", (5,)), ("tiny_cnn", (3, 28, 28)), ("test_resnet", (3, 160, 160))]
)
def test_a_backbone_without_blocks_is_refused(name: str, backbone: str, shape: tuple[int, ...]) -> None:
    task = Task(input_shape=shape, num_classes=2, num_domains=2)
    with pytest.raises(MessiError, match=f"^{name} requires a timm vision transformer"):
        build(ALGORITHMS.config(name)(), task=task, encoder=EncoderConfig(backbone=backbone, pretrained=False))


def test_blocks_with_another_kind_of_mlp_are_refused() -> None:
    network = VisionTransformer(
        img_size=32, embed_dim=32, depth=3, num_heads=2, num_classes=0, act_layer=nn.SiLU, weight_init="skip"
    )
    with pytest.raises(MessiError, match="whose MLP is Linear, GELU, Linear; block 2"):
        place_experts(Encoder(network, 32), experts, method="gmoe")


@pytest.mark.parametrize("drop_path", [0.0, 0.1])
@pytest.mark.parametrize("name", ["gmoe", "omoe", "dynmoe"])
def test_experts_in_blocks_keep_the_kernels_and_stochastic_depth_disables_them(name: str, drop_path: float) -> None:
    config = EncoderConfig(backbone="deit_tiny_patch16_224", pretrained=False)
    task = Task(input_shape=(3, 224, 224), num_classes=2, num_domains=2)
    with torch.device("meta"):
        assert isinstance(config.build(task.input_shape).network, FusedVisionTransformer)
        algorithm: Any = build(ALGORITHMS.config(name)(drop_path=drop_path), task=task, encoder=config)
    assert type(algorithm.encoder.network) is (VisionTransformer if drop_path else FusedVisionTransformer)


def test_later_blocks_are_dropped_more_often() -> None:
    encoder = TEST_VIT.build((3, 160, 160))
    place_experts(encoder, experts, method="gmoe", drop_path=0.1)
    network: Any = encoder.network
    assert isinstance(network.blocks[0].drop_path1, nn.Identity)
    rates = [(block.drop_path1.drop_prob, block.drop_path2.drop_prob) for block in network.blocks[1:]]
    assert rates == [(pytest.approx(rate), pytest.approx(rate)) for rate in (0.02, 0.04, 0.06, 0.08, 0.1)]
    plain = TEST_VIT.build((3, 160, 160))
    place_experts(plain, experts, method="gmoe")
    assert not [module for module in plain.modules() if isinstance(module, DropPath)]


@pytest.mark.parametrize("class_token", [True, False])
def test_the_routing_of_an_image_is_that_of_its_class_token_or_the_mean_over_tokens(class_token: bool) -> None:
    torch.manual_seed(0)
    network = VisionTransformer(
        img_size=32, embed_dim=32, depth=3, num_heads=2, num_classes=0, class_token=class_token, global_pool="avg"
    )
    encoder = Encoder(network, 32).eval()
    place_experts(encoder, experts, method="gmoe")
    encoder(torch.randn(5, 3, 32, 32))
    (routing,) = take_routings(encoder)
    by_image = routing.gates.view(5, 4 + class_token, 3)
    used = by_image[:, 0] if class_token else by_image.mean(1)
    found = image_routing(encoder, routing.gates, 5)
    torch.testing.assert_close(found, used / used.sum(-1, keepdim=True))
    torch.testing.assert_close(found.sum(-1), torch.ones(5))


@pytest.mark.parametrize(
    ("name", "slots", "router"),
    [
        ("gmoe", 6, 384 * 256 + 256 + 256 * 6 + 1),
        ("omoe", 6, 384 * 256 + 256 + 256 * 6 + 1),
        ("dynmoe", 8, 8 * 384 + 8),
    ],
)
def test_two_blocks_of_deit_s_get_five_more_mlps_or_seven_and_a_router(name: str, slots: int, router: int) -> None:
    """GMoE: 33.68 M. The paper states about 33.80: rounded parts, or a classifier (33.81 with DomainNet's)."""
    task = Task(input_shape=(3, 224, 224), num_classes=345, num_domains=5)
    with torch.device("meta"):
        encoder = EncoderConfig(backbone="deit_small_patch16_224", pretrained=False)
        algorithm: Any = build(ALGORITHMS.config(name)(), task=task, encoder=encoder)
    assert places(algorithm.encoder) == [8, 10]
    count = sum(parameter.numel() for parameter in algorithm.encoder.parameters())
    assert count == DEIT_S + 2 * ((slots - 1) * FFN + router)
    assert count == {"gmoe": 33_681_538, "omoe": 33_681_538, "dynmoe": 38_213_776}[name]
    assert sum(parameter.numel() for parameter in algorithm.parameters()) == count + 345 * 385


def test_experts_start_from_the_weights_of_the_encoder() -> None:
    torch.manual_seed(0)
    encoder = TEST_VIT.build((3, 160, 160))
    network: Any = encoder.network
    weight = network.blocks[4].mlp.fc1.weight.detach().clone()
    place_experts(encoder, experts, method="gmoe")
    for expert in network.blocks[4].mlp.experts.weight_in:
        assert torch.equal(expert, weight.T)


def test_settings_that_contradict_each_other_are_refused() -> None:
    task = Task(input_shape=(3, 160, 160), num_classes=2, num_domains=2)
    for name, field, sentence in (
        ("omoe", "top_k", "top_k must be at most num_experts = 6"),
        ("dynmoe", "num_experts", "max_experts must be at least num_experts = 9"),
    ):
        config = dataclasses.replace(ALGORITHMS.config(name)(), **{field: 9})
        with pytest.raises(MessiError, match=sentence):
            build(config, task=task, encoder=TEST_VIT)
