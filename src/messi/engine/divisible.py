"""Refuse a run that several processes cannot divide without changing its result."""

import torch
from timm.layers import drop
from timm.layers.patch_dropout import PatchDropout
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from messi.algorithms.common.base import Algorithm
from messi.core.errors import MessiError
from messi.engine.config import RunConfig
from messi.models.drop_path import DropPath
from messi.models.dropout import Dropout
from messi.models.encoder import Encoder


def require_divisible(algorithm: Algorithm, config: RunConfig, device: torch.device) -> None:
    """Raise if the steps of a run cannot be divided among processes (``core/shares.py``)."""
    if device.type not in ("cpu", "cuda"):
        raise MessiError(f"Several processes cannot share a run on '{device}'; use --device cpu, or one process.")
    if not config.training.deterministic:
        raise MessiError(
            "Several processes must compute the same numbers, which --no-deterministic does not ensure; omit it, or "
            "use one process."
        )
    encoders = [module for module in algorithm.modules() if isinstance(module, Encoder)]
    algorithm.train()
    for layer in (layer for encoder in encoders for layer in encoder.modules() if layer.training):
        if isinstance(layer, _BatchNorm):
            raise MessiError(
                f"The statistics of BatchNorm in '{config.encoder.backbone}' are those of a whole batch, which several "
                "processes do not have; add --frozen-batch-norm, choose another --backbone, or use one process."
            )
        if _draws(layer):
            raise MessiError(
                f"'{config.encoder.backbone}' draws random numbers in training ({type(layer).__name__}), which would "
                "depend on the number of processes; choose another --backbone, or use one process."
            )


def _draws(layer: nn.Module) -> bool:
    """Return whether a layer draws random numbers for each input by itself."""
    if isinstance(layer, Dropout | DropPath):
        return False
    rates: dict[type[nn.Module], str] = {
        _DropoutNd: "p",
        drop.DropPath: "drop_prob",
        drop.DropBlock2d: "drop_prob",
        PatchDropout: "prob",
    }
    return isinstance(layer, nn.RReLU) or any(
        isinstance(layer, kind) and getattr(layer, name) > 0 for kind, name in rates.items()
    )
