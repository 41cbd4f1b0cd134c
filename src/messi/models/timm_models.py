"""Everything that is asked of timm by the name of a model.

Import this module where it is used: timm takes longer to import than torch, and small networks do not need it.
"""

import contextlib
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import timm

from messi.core.errors import MessiError
from messi.models import resnet_v1  # noqa: F401 (registers itself with timm)
from messi.models.pretrained import cached_if_unreachable, load_weights


def names(pattern: str = "*") -> list[str]:
    """Return the names of all models that match a pattern."""
    return timm.list_models() if pattern == "*" else timm.list_models(pattern)


def check(name: str, *, others: Iterable[str]) -> None:
    """Raise if there is no such model; ``others`` are the names of other backbones that may have been meant."""
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, [*others, *timm.list_models()], n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise MessiError(f"There is no backbone named '{name}'; 'messi list backbones' lists all of them.{hint}")


def published(name: str) -> Any:
    """Return timm's description of a model's published weights."""
    return timm.get_pretrained_cfg(name)


def build(name: str, *, channels: int, pretrained: bool, weights: Path | None) -> Any:
    """Return a model without its head, from a file with weights, from its published ones or from random ones."""
    download = pretrained and not weights
    try:
        with cached_if_unreachable() if download else contextlib.nullcontext():
            model = timm.create_model(name, pretrained=download, num_classes=0, in_chans=channels)
    except Exception as error:  # timm, its hub client and the network raise many kinds
        if not download:
            raise
        raise MessiError(
            f"The pretrained weights of '{name}' could not be downloaded ({_one_line(error)}).",
            "Give a file with --weights, or start from random weights with --no-pretrained.",
        ) from error
    if weights:
        load_weights(model, weights)
    return model


def resize(model: Any, backbone: str, size: int) -> None:
    """Adapt a timm model and its weights to another image size; convolutions accept any size."""
    if tuple(model.pretrained_cfg["input_size"][1:]) == (size, size):
        return
    patch = max(getattr(getattr(model, "patch_embed", None), "patch_size", (1,)))
    if size % patch:
        raise MessiError(f"image_size must be a multiple of {patch}, the patch size of '{backbone}', but is {size}.")
    try:
        if hasattr(model, "set_input_size"):
            model.set_input_size(img_size=(size, size))
        elif model.pretrained_cfg.get("fixed_input_size"):
            raise ValueError("its layers depend on the image size")
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise MessiError(
            f"The backbone '{backbone}' cannot take images of {size} x {size} pixels ({error}); choose another "
            "--image-size or --backbone."
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
