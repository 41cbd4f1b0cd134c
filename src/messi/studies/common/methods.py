"""Methods as users write them: a name, and settings that differ from the defaults, such as "erm averaging=swad"."""

import dataclasses
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from messi.algorithms.common.base import ALGORITHMS, AlgorithmConfig
from messi.core.config import Config, field_types, from_text
from messi.core.errors import MessiError, unknown_name
from messi.core.registry import short_name
from messi.engine.training_config import TrainingConfig
from messi.models.encoder import EncoderConfig

_WRITTEN = re.compile(r"(?P<name>.*?)(?P<settings>(\s+\w+=\S+)*)\s*")


@dataclass(frozen=True)
class Method:
    """A method with the settings of its network and training."""

    algorithm: AlgorithmConfig
    encoder: EncoderConfig
    training: TrainingConfig


def name_and_settings(text: str) -> tuple[str, dict[str, str]]:
    """Split "NAME field=value ..." into the name and the settings by field."""
    found = _WRITTEN.fullmatch(text.strip())
    assert found is not None  # noqa: S101 (every text matches)
    return found["name"], dict(word.split("=", 1) for word in found["settings"].split())


def method_label(text: str) -> str:
    """Return how tables name a method: as the user wrote it, but a user's own file without its folder."""
    name, settings = name_and_settings(text)
    return " ".join([short_name(name), *(f"{key}={value}" for key, value in settings.items())])


def build_method(text: str, encoder: EncoderConfig, training: TrainingConfig) -> Method:
    """Return a method; its own settings override those of all methods."""
    name, settings = name_and_settings(text)
    parts = _parts(name)
    for key in settings:
        if not any(key in field_types(kind) for kind in parts):
            raise unknown_name(f"setting of the method {name}, its training or its encoder", key, _fields(parts))
    kind, *_ = parts
    own, in_encoder, in_training = (_values(part, settings) for part in parts)
    return Method(kind(**own), dataclasses.replace(encoder, **in_encoder), dataclasses.replace(training, **in_training))


def vary_methods(methods: Sequence[str], axes: Sequence[str]) -> tuple[str, ...]:
    """Return every method with every combination of values, "field=a,b,c" each, of the fields that it has."""
    values = dict(map(_axis, axes))
    fields = {text: _fields(_parts(name_and_settings(text)[0])) for text in methods}
    known = {field for own in fields.values() for field in own}
    for key in values:
        if key not in known:
            raise unknown_name("setting of these methods", key, known)
    return tuple(
        " ".join([text, *words])
        for text in methods
        for words in itertools.product(
            *([f"{key}={value}" for value in listed] for key, listed in values.items() if key in fields[text])
        )
    )


def permit_methods(methods: Sequence[str], files: Collection[str | Path]) -> None:
    """Raise for a method in a user's own file that is not one of ``files``: reading a plan must not execute it."""
    named = {short_name(str(file)) for file in files}
    for text in methods:
        name, _ = name_and_settings(text)
        if short_name(name) not in named:
            ALGORITHMS.permitted(name, None, ())


def _axis(text: str) -> tuple[str, list[str]]:
    key, _, listed = text.partition("=")
    values = [value for value in listed.split(",") if value]
    if not (key and values):
        raise MessiError(f"--vary must be written as field=value,value, but is '{text}'; name at least one value.")
    return key, values


def _parts(name: str) -> tuple[type[AlgorithmConfig], type[EncoderConfig], type[TrainingConfig]]:
    return ALGORITHMS.config(name), EncoderConfig, TrainingConfig


def _fields(parts: Sequence[type[Config]]) -> list[str]:
    return [field.name for kind in parts for field in dataclasses.fields(kind)]


def _values(kind: type[Config], settings: Mapping[str, str]) -> dict[str, Any]:
    types = field_types(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    return {key: from_text(types[key], text) for key, text in settings.items() if key in known}
