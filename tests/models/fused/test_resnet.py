"""Fused ResNets against timm's, in training and in prediction; without a GPU, Triton's interpreter runs the kernels."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import timm
import torch
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import Tensor, nn

from messi.algorithms.common.base import build
from messi.algorithms.erm import ERM
from messi.core import gpu_kernels
from messi.core.batch import Batch, Task
from messi.core.seeding import deterministic
from messi.engine.stepper import AdamStepper, OptimizerConfig
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
def frozen(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Return a mock that counts the BatchNorms with running statistics computed by kernels."""
    return count(monkeypatch, "frozen_norm")


@pytest.fixture
def of_batch(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Return a mock that counts the BatchNorms with the statistics of the batch computed by kernels."""
    return count(monkeypatch, "batch_norm")


def count(monkeypatch: pytest.MonkeyPatch, name: str) -> Mock:
    counted = Mock(wraps=getattr(batch_norm_kernels, name))
    monkeypatch.setattr(batch_norm_kernels, name, counted)
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
@pytest.mark.parametrize("training", [False, True])
def test_features_gradients_and_running_statistics_match_timm(
    block: type[nn.Module], options: dict[str, Any], training: bool, by_kernels: Switch, frozen: Mock, of_batch: Mock
) -> None:
    network, images = make(block, **options).train(training), rand(3, 3, 49, 48)
    plain = copy.deepcopy(network).double()
    by_kernels(False)
    wanted = answers(plain, images.double())
    resnet.fuse(network)
    by_kernels(True)
    found = answers(network, images)
    assert all(map(torch.equal, counters(network), counters(plain)))
    for one, other in zip([*found, *moments(network)], [*wanted, *moments(plain)], strict=True):
        assert relative_error(one, other) < (5 if training else 1) * ROUNDING  # deviations of few numbers amplify it
    counts = [0, norms(network) - norms(network.get_submodule("conv1"))]
    assert [frozen.call_count, of_batch.call_count] == (counts if training else counts[::-1])


def moments(network: nn.Module) -> list[Tensor]:
    return [buffer for buffer in network.buffers() if buffer.is_floating_point()]


def counters(network: nn.Module) -> list[Tensor]:
    return [buffer for buffer in network.buffers() if not buffer.is_floating_point()]


def norms(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def test_modules_and_names_stay() -> None:
    """Saved models contain them."""
    network = make(Bottleneck)
    state, modules = list(network.state_dict()), dict(network.named_modules())
    resnet.fuse(network)
    assert list(network.state_dict()) == state
    assert dict(network.named_modules()) == modules


def test_a_copy_has_its_own_weights(by_kernels: Switch, frozen: Mock) -> None:
    network, images = make(BasicBlock), rand(2, 3, 32, 32)
    resnet.fuse(network)
    by_kernels(True)
    before = network(images)
    other = copy.deepcopy(network)
    assert torch.equal(other(images), before)
    nn.init.ones_(other.get_submodule("layer1.0.bn2").bias)  # type: ignore[arg-type]
    assert not torch.equal(other(images), before)
    assert torch.equal(network(images), before)
    assert frozen.call_count == 4 * norms(network)


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


@pytest.mark.parametrize("name", ["bn1", "layer1.0.bn2", "layer2.0.downsample.1", "layer3"])
def test_single_layers_may_use_the_statistics_of_the_batch(
    name: str, by_kernels: Switch, frozen: Mock, of_batch: Mock
) -> None:
    network, images = make(BasicBlock), rand(2, 3, 32, 32)
    network.get_submodule(name).train()
    plain = copy.deepcopy(network)
    resnet.fuse(network)
    by_kernels(True)
    assert relative_error(network(images).detach(), plain(images).detach().double()) < ROUNDING
    trained = norms(network.get_submodule(name))
    assert (of_batch.call_count, frozen.call_count) == (trained, norms(network) - trained)
    for one, other in zip(network.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_running_statistics_see_the_batch_of_both_passes_of_sam_once(by_kernels: Switch, of_batch: Mock) -> None:
    images, labels = rand(4, 3, 32, 32), torch.tensor([0, 1, 0, 1], device=DEVICE)
    task = Task(input_shape=(3, 32, 32), num_classes=2, num_domains=1)
    algorithm = build(ERM.Config(), task=task, encoder=EncoderConfig(backbone="test_resnet", pretrained=False))
    assert isinstance(algorithm, ERM)
    once = copy.deepcopy(algorithm.to(DEVICE).train())
    by_kernels(True)
    plain = OptimizerConfig(learning_rate=0.01, weight_decay=0.0)
    for model, options, passes in ((algorithm, replace(plain, flatness="sam"), 2), (once, plain, 1)):
        of_batch.reset_mock()
        batch = Batch(images, labels, torch.zeros_like(labels))
        AdamStepper(model, options).descend(partial(model.loss, batch))
        # The BatchNorms between the first three convolutions are torch's.
        assert of_batch.call_count == passes * (norms(model) - 2)
    assert all(map(torch.equal, algorithm.buffers(), once.buffers()))
    assert set(map(int, counters(algorithm))) == {1}


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


@pytest.mark.parametrize(
    "norm",
    [nn.SyncBatchNorm, partial(nn.BatchNorm2d, affine=False), partial(nn.BatchNorm2d, track_running_stats=False)],
)
def test_other_kinds_of_batch_norm_are_left_to_timm(norm: Any) -> None:
    network = ResNet(BasicBlock, layers=(1, 1, 1, 1), num_classes=0, norm_layer=norm)  # type: ignore[arg-type]
    before = [type(module) for module in network.modules()]
    resnet.fuse(network)
    assert [type(module) for module in network.modules()] == before


@pytest.mark.parametrize("name", ["resnetv2_50", "mobilenetv3_small_050"])
def test_other_networks_are_not_replaced(name: str) -> None:
    network = timm.create_model(name, num_classes=0)
    before = [type(module) for module in network.modules()]
    resnet.fuse(network)
    assert [type(module) for module in network.modules()] == before


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet50_v1"])
@pytest.mark.parametrize("frozen_batch_norm", [True, False])
def test_bfloat16_is_as_accurate_as_autocast(
    name: str, frozen_batch_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(backbone=name, pretrained=False, frozen_batch_norm=frozen_batch_norm)
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
