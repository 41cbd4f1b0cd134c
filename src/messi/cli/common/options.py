"""How commands declare their options."""

import argparse
from typing import Any

import tyro

from messi.models.encoder import EncoderConfig

FLAT = (tyro.conf.OmitArgPrefixes, tyro.conf.SuppressFixed, tyro.conf.AvoidSubcommands)
"""The fields of a config become options without a prefix."""


def shown_as(metavar: str) -> Any:
    """Return the annotation of an option whose help states its default, with a word for its value."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def add_encoder_options(first: argparse.ArgumentParser) -> None:
    """Let a parser read the options of the encoder on which the defaults of other options depend."""
    for option in ("backbone", "tune", "views"):
        first.add_argument(f"--{option}")


def chosen_encoder(chosen: argparse.Namespace) -> EncoderConfig:
    """Return the encoder that these options describe; tyro reports values of a wrong type."""
    views = str(chosen.views)
    return EncoderConfig(
        backbone=chosen.backbone, tune=chosen.tune or "full", views=int(views) if views.isdecimal() else 1
    )
