"""Restricting an encoder: what trains, what stays as it was, and what is not even differentiated."""

import copy

import pytest
import timm
import torch
from timm.layers.drop import DropPath
from torch import Tensor, nn

from messi.core.errors import MessiError
from messi.models.encoder import Encoder, EncoderConfig, restrict_encoders, untrained_names
from messi.models.tuning import Tuning, parse_tuning


def encoder_of(backbone: str = "test_vit", tune: str = "full", size: int = 32) -> Encoder:
    torch.manual_seed(0)
    config = EncoderConfig(backbone=backbone, pretrained=False, image_size=size)
    encoder = config.build((3, size, size))
    encoder.restrict(parse_tuning(tune))
    return encoder


def images(number: int = 4, size: int = 32) -> Tensor:
    return torch.randn(number, 3, size, size, generator=torch.Generator().manual_seed(1))


def trained(encoder: Encoder) -> set[str]:
    return {name for name, parameter in encoder.network.named_parameters() if parameter.requires_grad}


def test_a_text_names_the_part_that_trains() -> None:
    expected = {
        "full": Tuning("full"),
        "head": Tuning("head"),
        "last:4": Tuning("last", 4),
        "lora:16": Tuning("lora", 16),
    }
    assert {text: parse_tuning(text) for text in expected} == expected
    assert [str(tuning) for tuning in expected.values()] == list(expected)


@pytest.mark.parametrize("text", ["", "last", "last:0", "last:-1", "lora:", "lora:8x", "HEAD", "last:123456", "head:1"])
def test_other_texts_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(MessiError, match=r"tune must be full, head, last:N .* but is"):
        EncoderConfig(tune=text)


def test_views_require_a_frozen_encoder() -> None:
    assert EncoderConfig(tune="head", views=3).views == 3
    with pytest.raises(MessiError, match="views above 1 applies to --tune head"):
        EncoderConfig(tune="last:2", views=3)


@pytest.mark.parametrize("backbone", ["small_cnn", "tiny_cnn", "mlp", "identity"])
def test_small_networks_train_as_a_whole(backbone: str) -> None:
    with pytest.raises(MessiError, match="requires a pretrained timm model"):
        EncoderConfig(backbone=backbone, tune="head").check()


@pytest.mark.parametrize(
    ("backbone", "tune", "starts"),
    [
        ("deit_tiny_patch16_224", "last:2", ("blocks.10.", "blocks.11.", "norm.")),
        ("deit_tiny_patch16_224", "last:12", ("blocks.", "norm.")),
        ("vit_base_patch16_siglip_224", "last:1", ("blocks.11.", "norm.", "attn_pool.")),
        ("resnet18", "last:1", ("layer4.1.",)),
        ("deit_tiny_patch16_224", "head", ()),
    ],
)
def test_the_last_blocks_train_and_what_comes_after_them(backbone: str, tune: str, starts: tuple[str, ...]) -> None:
    with torch.device("meta"):
        encoder = Encoder(timm.create_model(backbone, num_classes=0), 1)
    encoder.restrict(parse_tuning(tune))
    names = [name for name, _ in encoder.network.named_parameters()]
    assert trained(encoder) == {name for name in names if name.startswith(starts)}
    assert untrained_names(nn.ModuleDict({"one": encoder})) == {
        f"one.network.{name}" for name in names if not name.startswith(starts)
    }


def test_more_blocks_than_a_network_has_are_refused() -> None:
    with pytest.raises(MessiError, match="more blocks than the 6 of this backbone"):
        encoder_of(tune="last:7")


@pytest.mark.parametrize("tune", ["last:1", "last:3"])
def test_the_gradients_of_the_trained_part_are_those_of_full_training(tune: str) -> None:
    whole, part = encoder_of(), encoder_of(tune=tune)
    for encoder in (whole, part):
        encoder(images()).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in whole.network.named_parameters()}
    for name, parameter in part.network.named_parameters():
        if parameter.requires_grad:
            assert torch.equal(parameter.grad, gradients[name]), name  # type: ignore[arg-type]
        else:
            assert parameter.grad is None, name


def test_frozen_blocks_keep_nothing_for_a_backward_pass() -> None:
    encoder = encoder_of(tune="last:1")
    saved: list[bool] = []
    for block in encoder.network.blocks:  # type: ignore[union-attr]
        block.register_forward_hook(lambda _module, _inputs, output: saved.append(output.requires_grad))
    encoder(images())
    assert saved == [False] * 5 + [True]


def test_the_frozen_part_stays_in_the_mode_of_prediction() -> None:
    encoder = encoder_of("resnet18", "last:2")
    before = copy.deepcopy(encoder.network.state_dict())
    encoder.train()
    encoder(images(8, 32))
    changed = {name for name, value in encoder.network.state_dict().items() if not torch.equal(value, before[name])}
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert changed == {name for name in before if name.startswith("layer4.") and name.endswith(statistics)}
    modes = {name: module.training for name, module in encoder.network.named_modules() if not list(module.children())}
    assert {name.split(".")[0] for name, training in modes.items() if training} == {"layer4"}


def test_frozen_blocks_are_never_dropped() -> None:
    encoder = encoder_of()
    for block in encoder.network.blocks:  # type: ignore[union-attr]
        block.drop_path1 = DropPath(0.9)
    encoder.restrict(parse_tuning("last:2"))
    encoder.eval().train()
    assert [block.drop_path1.training for block in encoder.network.blocks] == [False] * 4 + [True] * 2  # type: ignore[union-attr]


def test_a_probe_suspends_the_trained_part_and_restores_only_that() -> None:
    encoder = encoder_of(tune="last:2")
    names = trained(encoder)
    encoder.freeze()
    assert trained(encoder) == set()
    encoder.unfreeze()
    assert trained(encoder) == names
    assert not encoder.network.blocks[0].training  # type: ignore[union-attr, index]


def test_only_a_frozen_encoder_accepts_features() -> None:
    encoder, features = encoder_of(tune="head"), torch.randn(4, 64)
    assert encoder(features) is features
    assert encoder(images()).shape == (4, encoder.width)
    assert not encoder(images()).requires_grad
    with pytest.raises(ValueError, match="not enough values to unpack"):
        encoder_of()(features)


def test_frozen_encoders_of_one_method_share_their_network() -> None:
    first, second = encoder_of(), encoder_of()
    pair = nn.ModuleList([first, second])
    restrict_encoders(pair, Tuning("head"))
    assert first.network is second.network
    assert len(untrained_names(pair)) == 2 * len(list(first.parameters()))
