"""Fused ResNets with frozen BatchNorm against timm's; without a GPU, Triton's interpreter runs the kernels."""

import copy
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import timm
import torch
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import Tensor, nn

from messi.core import gpu_kernels
from messi.core.seeding import deterministic
from messi.models import mixstyle
from messi.models.encoder import Encoder, EncoderConfig
from messi.models.fused import batch_norm_kernels, resnet

from .common import DEVICE, ROUNDING, rand, relative_error

Switch = Callable[[bool], None]


def make(block: Any, **options: Any) -> nn.Module:
    """Return a narrow network in prediction mode with non-trivial BatchNorm."""
    torch.manual_seed(0)
    return unsettle(ResNet(block, layers=(1, 2, 1, 1), channels=(8, 16, 16, 24), num_classes=0, **options)).eval()


def unsettle(network: nn.Module) -> nn.Module:
    """Give BatchNorm statistics, scales and shifts away from 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for name, low in (("weight", 0.5), ("bias", -0.5), ("running_mean", -0.5), ("running_var", 0.5)):
                nn.init.uniform_(getattr(module, name), low, low + 1, generator=generator)
    return network.to(DEVICE)


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> Switch:
    """Return a switch between kernels, in float32, and timm's own forward."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return lambda on: monkeypatch.setattr(gpu_kernels, "run_under_autocast", lambda _: on)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Return a mock that counts the BatchNorms computed by kernels."""
    counted = Mock(wraps=batch_norm_kernels.frozen_norm)
    monkeypatch.setattr(batch_norm_kernels, "frozen_norm", counted)
    return counted


def answers(network: nn.Module, images: Tensor) -> list[Tensor]:
    """Return the features and the gradients of all parameters."""
    features = network(images)
    above = rand(*features.shape, seed=2).to(features.dtype)
    return [features.detach(), *torch.autograd.grad(features, list(network.parameters()), above)]


# As timm builds ResNet-18 and 50; and with several convolutions at the start and means on the shortcuts.
@pytest.mark.parametrize(
    ("block", "options"),
    [(BasicBlock, {}), (Bottleneck, {}), (Bottleneck, {"stem_type": "deep", "stem_width": 16, "avg_down": True})],
)
def test_features_and_all_gradients_match_timm(
    block: type[nn.Module], options: dict[str, Any], by_kernels: Switch, kernel: Mock
) -> None:
    network, images = make(block, **options), rand(2, 3, 33, 32)
    by_kernels(False)
    wanted = answers(copy.deepcopy(network).double(), images.double())
    resnet.fuse(network)
    by_kernels(True)
    found = answers(network, images)
    for one, other in zip(found, wanted, strict=True):
        assert relative_error(one, other) < ROUNDING
    assert kernel.call_count == norms(network) - norms(network.get_submodule("conv1"))


def norms(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def test_modules_and_names_stay() -> None:
    """Saved models contain them."""
    network = make(Bottleneck)
    state, modules = list(network.state_dict()), dict(network.named_modules())
    resnet.fuse(network)
    assert list(network.state_dict()) == state
    assert dict(network.named_modules()) == modules


def test_a_copy_has_its_own_weights(by_kernels: Switch, kernel: Mock) -> None:
    network, images = make(BasicBlock), rand(2, 3, 32, 32)
    resnet.fuse(network)
    by_kernels(True)
    before = network(images)
    other = copy.deepcopy(network)
    assert torch.equal(other(images), before)
    nn.init.ones_(other.get_submodule("layer1.0.bn2").bias)  # type: ignore[arg-type]
    assert not torch.equal(other(images), before)
    assert torch.equal(network(images), before)
    assert kernel.call_count == 4 * norms(network)


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_styles_are_mixed_with_and_without_kernels(block: type[nn.Module], by_kernels: Switch) -> None:
    network, images = make(block), rand(3, 3, 32, 32)
    resnet.fuse(network)
    mixstyle.insert(network, probability=1.0, alpha=0.5)
    encoder = Encoder(network, 0, frozen_batch_norm=True)
    results = {}
    for training in (True, False):
        for on in (True, False):
            by_kernels(on)
            torch.manual_seed(1)
            results[training, on] = encoder.train(training)(images).detach().double()
        assert relative_error(results[training, True], results[training, False]) < ROUNDING
    assert relative_error(results[True, True], results[False, True]) > 0.01


# A block with one such layer is left to torch as a whole, including its shortcut.
@pytest.mark.parametrize(("name", "left"), [("", 15), ("bn1", 1), ("layer1.0.bn2", 3), ("layer2.0.downsample.1", 3)])
def test_batch_statistics_are_computed_by_torch(name: str, left: int, by_kernels: Switch, kernel: Mock) -> None:
    network, images = make(BasicBlock), rand(2, 3, 32, 32)
    network.get_submodule(name).train()
    plain = copy.deepcopy(network)
    resnet.fuse(network)
    by_kernels(True)
    assert relative_error(network(images).detach(), plain(images).detach().double()) < ROUNDING
    assert norms(network) - kernel.call_count == left
    for one, other in zip(network.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other)


# How many of five blocks fit: three have a stride, and with it the aa layer; two drop parts of maps; four are dropped.
@pytest.mark.parametrize(
    ("options", "fitting"),
    [
        ({}, 5),
        ({"act_layer": nn.SiLU}, 0),
        ({"block_args": {"attn_layer": "se"}}, 0),
        ({"aa_layer": nn.AvgPool2d}, 2),
        ({"drop_block_rate": 0.1}, 3),
        ({"drop_path_rate": 0.1}, 1),
        ({"norm_layer": nn.Identity}, 0),
    ],
    ids=str,
)
def test_blocks_with_other_layers_are_not_replaced(options: dict[str, Any], fitting: int, by_kernels: Switch) -> None:
    network, images = make(Bottleneck, **options), rand(2, 3, 32, 32)
    plain = copy.deepcopy(network)
    resnet.fuse(network)
    by_kernels(True)
    changed = [type(block) is not Bottleneck for block in network.modules() if isinstance(block, Bottleneck)]
    assert sum(changed) == fitting
    assert relative_error(network(images).detach(), plain(images).detach().double()) < ROUNDING


@pytest.mark.parametrize("name", ["resnetv2_50", "mobilenetv3_small_050"])
def test_other_networks_are_not_replaced(name: str) -> None:
    network = timm.create_model(name, num_classes=0)
    before = [type(module) for module in network.modules()]
    resnet.fuse(network)
    assert [type(module) for module in network.modules()] == before


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet50_v1"])
def test_bfloat16_is_as_accurate_as_autocast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(backbone=name, pretrained=False, frozen_batch_norm=True)
    encoder, images = unsettle(config.build((3, 224, 224))).train(), rand(32, 3, 224, 224)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    wanted = [one.double() for one in answers(encoder, images)]
    with deterministic(), torch.autocast("cuda", torch.bfloat16):
        ours, again = (answers(encoder, images) for _ in range(2))
        with gpu_kernels.disabled():
            theirs = answers(encoder, images)
    assert not torch.equal(ours[0], theirs[0])
    assert all(map(torch.equal, ours, again))
    assert [one.dtype for one in ours] == [one.dtype for one in theirs]

    def off(found: list[Tensor], part: slice) -> float:
        return relative_error(*(torch.cat([one.double().flatten() for one in side[part]]) for side in (found, wanted)))

    for part in (slice(1), slice(1, None)):  # features, gradients
        assert off(ours, part) <= 1.2 * off(theirs, part)
