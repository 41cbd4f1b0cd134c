"""The layers of an encoder: timm's own count, and the order of the layers of the small networks."""

import pytest
import timm
import torch
from timm.optim._param_groups import param_groups_layer_decay
from torch import nn

from messi.algorithms.gmoe import GMoE
from messi.core.batch import Task
from messi.models.encoder import SMALL, EncoderConfig
from messi.models.layer_depth import layers_below_head


def by_name(network: nn.Module) -> dict[str, int]:
    below = layers_below_head(network)
    return {name: below[parameter] for name, parameter in network.named_parameters()}


@pytest.mark.parametrize(
    "backbone",
    [
        "deit_tiny_patch16_224",
        "vit_base_patch32_clip_224",
        "beit_base_patch16_224",  # a norm after the pooling, which is part of the head
        "resnet50",
        "convnext_atto",
        "swin_tiny_patch4_window7_224",
        "efficientnet_b0",
        "cait_xxs24_224",  # timm counts its layers by a function
        "pit_ti_224",  # timm has no list of its layers
    ],
)
def test_the_learning_rates_of_a_timm_model_are_timms(backbone: str) -> None:
    with torch.device("meta"):
        whole = timm.create_model(backbone, num_classes=7)
        encoder = timm.create_model(backbone, num_classes=0)
    groups = param_groups_layer_decay(whole, weight_decay=0.1, weight_decay_exclude_1d=False, layer_decay=0.7)
    scales = {parameter: group["lr_scale"] for group in groups for parameter in group["params"]}
    expected = {name: scales[parameter] for name, parameter in whole.named_parameters()}
    found = {name: 0.7**number for name, number in by_name(encoder).items()}
    assert found == pytest.approx({name: expected[name] for name in found}, rel=1e-9)
    assert {expected[name] for name in expected.keys() - found.keys()} == {1.0}, "only the head is missing"


def test_a_layer_of_a_small_network_is_a_convolution_or_linear_layer_with_its_norm() -> None:
    expected = {
        "tiny_cnn": {0: 3, 2: 3, 3: 2, 5: 2, 6: 1, 8: 1},
        "small_cnn": {0: 4, 2: 4, 3: 3, 5: 3, 6: 2, 8: 2, 9: 1, 11: 1},
        "mlp": {1: 2, 3: 1},
        "identity": {},
    }
    assert expected.keys() == SMALL.keys() - {"residual_mlp"}
    depths = {"hidden": 3, "linear": 2, "out": 1}
    network = EncoderConfig(backbone="residual_mlp").build((3, 28, 28)).network
    assert by_name(network) == {f"{part}.{kind}": n for part, n in depths.items() for kind in ("weight", "bias")}
    for backbone, layers in expected.items():
        network = EncoderConfig(backbone=backbone).build((3, 28, 28)).network
        names = {f"{number}.{kind}": below for number, below in layers.items() for kind in ("weight", "bias")}
        assert by_name(network) == names, backbone


def test_experts_have_the_depth_of_their_block() -> None:
    task = Task(input_shape=(3, 160, 160), num_classes=2, num_domains=2)
    encoder = EncoderConfig(backbone="test_vit", pretrained=False)
    network = GMoE(GMoE.Config(moe_blocks=(1, 3)), task=task, encoder=encoder).encoder.network
    below = by_name(network)
    depth = len(network.blocks)  # type: ignore[arg-type]
    for number in (1, 3):
        inside = {name: below[name] for name in below if name.startswith(f"blocks.{number}.mlp.")}
        assert any("experts" in name for name in inside)
        assert any("router" in name for name in inside)
        assert set(inside.values()) == {depth - number}
    assert below["pos_embed"] == depth + 1
