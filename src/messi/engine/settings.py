"""The settings of a run by name, in whichever part of its config they are: its method, its encoder or its training."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from messi.algorithms.common.base import AlgorithmConfig
from messi.core.config import field_types
from messi.engine.config import RunConfig
from messi.engine.training_config import TrainingConfig
from messi.models.encoder import EncoderConfig

PARTS = ("algorithm", "encoder", "training")
"""No two of these have a field of the same name."""


def setting_types(algorithm: type[AlgorithmConfig]) -> dict[str, Any]:
    """Return the types of all settings of a run with this method."""
    kinds = (algorithm, EncoderConfig, TrainingConfig)
    return {one.name: field_types(kind)[one.name] for kind in kinds for one in dataclasses.fields(kind)}


def with_settings(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return the config with some settings changed."""
    parts = {}
    for name in PARTS:
        part = getattr(config, name)
        own = {one.name: values[one.name] for one in dataclasses.fields(part) if one.name in values}
        parts[name] = dataclasses.replace(part, **own)
    return dataclasses.replace(config, **parts)
