"""Compile every Triton kernel of messi for an NVIDIA GPU that need not be there.

    python tests/compile_kernels.py CAPABILITY

The functions that launch kernels are called with tensors on the CPU, and every launch only compiles. CAPABILITY is, for
example, 90. Prints a JSON document: the largest number of bytes of shared memory that each kernel uses. It is an error
if a kernel is launched somewhere in messi, but in none of the parts below.
"""

import ast
import importlib
import inspect
import json
import os
import pkgutil
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

import messi
from messi.algorithms.common.base import ALGORITHMS, build
from messi.core import gpu_kernels
from messi.core.batch import InputSpec, Task
from messi.data import augment_kernels
from messi.data.augment import draw_parameters
from messi.data.images import Images
from messi.losses.ssi.loss import Discrepancy, ssi_loss
from messi.models.encoder import Encoder, EncoderConfig

HALF = torch.bfloat16
BACKBONES = {
    "deit_tiny_patch16_224": 224,
    "vit_base_patch16_clip_quickgelu_224": 224,
    "resnet50": 64,
    "small_cnn": 28,
}
EXPERTS_IN_BLOCKS = ("gmoe", "omoe", "dynmoe")


class Driver:
    """Stands in for the driver of a GPU."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


def invariance_loss() -> None:
    modes: tuple[tuple[Discrepancy, bool, bool], ...] = (("ot", False, False), ("ot", True, True), ("mmd", False, True))
    for discrepancy, debiased, needed in modes:
        features = torch.randn(6, 96, 384, requires_grad=needed)
        routing, labels, domains = torch.rand(96, 6), torch.randint(7, (96,)), torch.randint(3, (96,))
        ssi_loss(features, routing, labels, domains, discrepancy=discrepancy, debiased=debiased)


def image_preparation() -> None:
    images = Images.pack([torch.randint(256, (3, 40, 50), dtype=torch.uint8)] * 3)
    spec = InputSpec(shape=(3, 224, 224), mean=(0.5,) * 3, std=(0.5,) * 3)
    drawn = draw_parameters(images.sizes, torch.Generator().manual_seed(0))
    augment_kernels.augment(images, drawn, spec)
    augment_kernels.resize(images, drawn.boxes, drawn.flip, spec)


def networks() -> None:
    for name, size in BACKBONES.items():
        config = EncoderConfig(backbone=name, pretrained=False, image_size=size)
        encode(config.build((3, size, size)), size)


def frozen_norms() -> None:
    config = EncoderConfig(backbone="resnet50", pretrained=False, image_size=64, frozen_batch_norm=True)
    encode(config.build((3, 64, 64)), 64)


def experts_in_blocks() -> None:
    config = EncoderConfig(backbone="deit_tiny_patch16_224", pretrained=False)
    task = Task(input_shape=(3, 224, 224), num_classes=2, num_domains=2)
    for name in EXPERTS_IN_BLOCKS:
        algorithm: Any = build(ALGORITHMS.config(name)(), task=task, encoder=config)
        encode(algorithm.encoder, 224)


def encode(encoder: Encoder, size: int) -> None:
    """Run the last two blocks of an encoder forward and backward."""
    network: Any = encoder.train().network
    if hasattr(network, "blocks"):
        network.blocks = network.blocks[-2:]
    with torch.autocast("cpu", HALF):
        encoder(torch.randn(2, 3, size, size)).sum().backward()


def compile_all(capability: int) -> dict[str, int]:
    """Return the bytes of shared memory of every kernel, the most that any shape needs."""
    used: dict[str, int] = {}
    launch = JITFunction.run

    def compiled(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        name = f"{kernel.fn.__module__}.{kernel.fn.__name__}"
        result = launch(kernel, *args, grid=grid, warmup=True, **options)
        used[name] = max(used.get(name, 0), result.metadata.shared)

    triton.runtime.driver.set_active(Driver(capability))
    with (
        mock.patch.object(JITFunction, "run", compiled),
        mock.patch.object(gpu_kernels, "run_on", return_value=True),
        mock.patch.object(gpu_kernels, "run_under_autocast", return_value=True),
        mock.patch.object(torch, "get_autocast_dtype", return_value=HALF),
        mock.patch.object(torch, "mm", widened(torch.mm)),
        mock.patch.object(torch, "bmm", widened(torch.bmm)),
    ):
        for part in (invariance_loss, image_preparation, networks, frozen_norms, experts_in_blocks):
            part()
    missing = launched_kernels() - used.keys()
    assert not missing, f"launched in none of the parts: {sorted(missing)}"
    return used


def widened(multiply: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a product with ``out_dtype``, which torch has only on a GPU."""

    def product(left: Tensor, right: Tensor, *, out_dtype: torch.dtype | None = None) -> Tensor:
        return multiply(left, right).to(out_dtype or left.dtype)

    return product


def launched_kernels() -> set[str]:
    """Return the names of the kernels that messi launches: ``kernel[grid](...)``."""
    names = set()
    for found in pkgutil.walk_packages(messi.__path__, "messi."):
        if found.name.endswith("kernels"):
            module = importlib.import_module(found.name)
            for node in ast.walk(ast.parse(inspect.getsource(module))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                    kernel = getattr(module, ast.unparse(node.func.value), None)
                    if isinstance(kernel, JITFunction):
                        names.add(f"{kernel.fn.__module__}.{kernel.fn.__name__}")
    return names


if __name__ == "__main__":
    sys.stdout.write(json.dumps(compile_all(int(sys.argv[1]))))
