"""Where faster implementations take the place of a network's modules.

A replacement is a subclass with the same parameters and the same function. It uses kernels where they can run and calls
``super().forward`` elsewhere. Only the class of a module changes, so parameter names, saved models and hooks remain
valid. To add one: a file here with the subclass and its ``fuse`` function, and a line in ``REPLACEMENTS``.
"""

import importlib
import sys
from dataclasses import dataclass

import torch
from torch import nn

from messi.core.gpu_kernels import implementation


@dataclass(frozen=True)
class Replacement:
    """A faster implementation of one family of networks."""

    networks: str
    """Which networks, as ``messi info`` lists them."""
    original: str
    """The library whose code runs where the kernels cannot."""
    module: str
    """The module with a function ``fuse``, which sets the classes of a network's modules.

    A module with features that the kernels lack keeps its class. Called again after a change to the network.
    """


REPLACEMENTS = (
    Replacement("vision transformers", "timm", "vit"),
    Replacement("ResNets", "timm", "resnet"),
    Replacement("small_cnn and tiny_cnn", "torch", "small"),
)


def fuse(network: nn.Module) -> None:
    """Apply every replacement that fits the network; call it again after a change to the network."""
    for replacement in REPLACEMENTS:
        if replacement.original in sys.modules:  # otherwise the network is not timm's, which takes long to import
            importlib.import_module(f"messi.models.fused.{replacement.module}").fuse(network)


def implementations(device: torch.device) -> dict[str, str]:
    """Return which implementation each family of networks uses on a device, and why not the kernels."""
    return {one.networks: implementation(device, otherwise=one.original) for one in REPLACEMENTS}
