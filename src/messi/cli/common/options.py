"""How commands declare their options."""

from typing import Any

import tyro

FLAT = (tyro.conf.OmitArgPrefixes, tyro.conf.SuppressFixed, tyro.conf.AvoidSubcommands)
"""The fields of a config become options without a prefix."""


def shown_as(metavar: str) -> Any:
    """Return the annotation of an option whose help states its default, with a word for its value."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")
