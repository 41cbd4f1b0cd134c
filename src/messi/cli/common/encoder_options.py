"""The options of the encoder, on which the defaults of other options depend."""

import argparse

from messi.models.encoder import EncoderConfig


def add_encoder_options(first: argparse.ArgumentParser) -> None:
    """Let a parser read the options of the encoder on which the defaults of other options depend."""
    for option in ("backbone", "weights", "tune", "views"):
        first.add_argument(f"--{option}")
    first.add_argument("--pretrained", action=argparse.BooleanOptionalAction, default=True)


def chosen_encoder(chosen: argparse.Namespace) -> EncoderConfig:
    """Return the encoder that these options describe; tyro reports values of a wrong type."""
    views = str(chosen.views)
    return EncoderConfig(
        backbone=chosen.backbone,
        pretrained=chosen.pretrained,
        weights=chosen.weights,
        tune=chosen.tune or "full",
        views=int(views) if views.isdecimal() else 1,
    )
