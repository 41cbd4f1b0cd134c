"""The seam for faster implementations: which network gets which, and what is reported about it."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from messi.core import gpu_kernels
from messi.core.hardware import Hardware
from messi.models.encoder import EncoderConfig
from messi.models.experts import Experts
from messi.models.fused import vit
from messi.models.fused.replace import REPLACEMENTS, fuse, implementations

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("backbone", "shape", "expected"),
    [
        ("deit_tiny_patch16_224", (3, 224, 224), {"FusedVisionTransformer"}),
        ("resnet18", (3, 224, 224), {"_FusedResNet", "_FusedBasicBlock"}),
        ("resnet50_v1", (3, 224, 224), {"_FusedResNet", "_FusedBottleneck"}),
        ("small_cnn", (2, 28, 28), {"_FusedConvNet", "_FusedNorm"}),
        ("tiny_cnn", (3, 28, 28), {"_FusedConvNet", "_FusedNorm"}),
        ("mlp", (7,), set()),
        ("mobilenetv3_small_050", (3, 224, 224), set()),
    ],
)
def test_an_encoder_is_replaced_when_it_is_built_and_again_without_effect(
    backbone: str, shape: tuple[int, ...], expected: set[str]
) -> None:
    def fused(network: nn.Module) -> list[str]:
        return [type(module).__name__ for module in network.modules() if "Fused" in type(module).__name__]

    with torch.device("meta"):
        network = EncoderConfig(backbone=backbone, pretrained=False).build(shape).network
    before = fused(network)
    assert set(before) == expected
    fuse(network)
    assert fused(network) == before


def test_on_a_cpu_a_replaced_network_computes_the_same_bits() -> None:
    for backbone, size in (("deit_tiny_patch16_224", 224), ("test_resnet", 160), ("tiny_cnn", 28)):
        torch.manual_seed(0)
        encoder = EncoderConfig(backbone=backbone, pretrained=False).build((3, size, size)).eval()
        images = torch.randn(2, 3, size, size)
        found = encoder(images)
        for module in encoder.network.modules():
            if "Fused" in type(module).__name__:
                module.__class__ = type(module).__bases__[0]
        assert torch.equal(encoder(images), found)


def test_a_vision_transformer_encodes_with_kernels_where_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = EncoderConfig(backbone="deit_tiny_patch16_224", pretrained=False).build((3, 224, 224))
    images = torch.zeros(1, 3, 224, 224)
    kernels = Mock(return_value=torch.ones(1, 192))
    monkeypatch.setattr(vit, "encode", kernels)
    assert not torch.equal(encoder(images), torch.ones(1, 192))
    monkeypatch.setattr(gpu_kernels, "run_under_autocast", lambda _: True)
    assert torch.equal(encoder(images), torch.ones(1, 192))
    kernels.assert_called_once_with(encoder.network, images)


def test_experts_use_the_low_precision_function_unless_they_drop_units(monkeypatch: pytest.MonkeyPatch) -> None:
    experts, inputs = Experts.initialised(8, 3), torch.randn(5, 8)
    experts._dropout = 0.5
    monkeypatch.setattr(gpu_kernels, "run_under_autocast", lambda _: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.bfloat16)
    assert experts.train()(inputs).dtype == torch.float32
    assert experts.eval()(inputs).dtype == torch.bfloat16


def test_reports_what_computes_and_why_kernels_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [replacement.networks for replacement in REPLACEMENTS]
    assert list(implementations(CPU)) == names
    assert implementations(CPU)["vision transformers"] == "timm (no GPU)"
    ampere = Hardware(kind="cuda", capability=(8, 0), triton=True)
    monkeypatch.setattr(gpu_kernels, "hardware_of", lambda _: ampere)
    assert set(implementations(CUDA).values()) == {"fused GPU kernels"}
    monkeypatch.setattr(gpu_kernels, "hardware_of", lambda _: replace(ampere, triton=False))
    assert implementations(CUDA)["small_cnn and tiny_cnn"] == "torch (Triton is not installed)"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_kernels_run_on_cuda_tensors_unless_disabled() -> None:
    tensor = torch.zeros(1, device="cuda")
    assert gpu_kernels.run_on(tensor)
    assert not gpu_kernels.run_under_autocast(tensor)
    with torch.autocast("cuda", torch.bfloat16):
        assert gpu_kernels.run_under_autocast(tensor)
        with gpu_kernels.disabled():
            assert not gpu_kernels.run_on(tensor)
        assert gpu_kernels.run_under_autocast(tensor)
