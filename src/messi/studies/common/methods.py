"""Methods as users write them: the name of a method or a recipe, and settings, such as "messi_swad ssi_weight=0.1"."""

import dataclasses
import itertools
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from messi.algorithms.common.base import ALGORITHMS, AlgorithmConfig
from messi.core.config import from_text
from messi.core.errors import MessiError, unknown_name
from messi.core.registry import short_name
from messi.engine.config import RunConfig
from messi.engine.recipes import RECIPES, recipe_for_method
from messi.engine.settings import setting_types, with_settings

_WRITTEN = re.compile(r"(?P<name>.*?)(?P<settings>(\s+\w+=\S+)*)\s*")


def name_and_settings(text: str) -> tuple[str, dict[str, str]]:
    """Split "NAME field=value ..." into the name and the settings by field."""
    found = _WRITTEN.fullmatch(text.strip())
    assert found is not None  # noqa: S101 (every text matches)
    return found["name"], dict(word.split("=", 1) for word in found["settings"].split())


def method_label(text: str) -> str:
    """Return how tables name a method: as the user wrote it, but a user's own file without its folder."""
    name, settings = name_and_settings(text)
    return " ".join([short_name(name), *(f"{key}={value}" for key, value in settings.items())])


def with_method(text: str, config: RunConfig) -> RunConfig:
    """Return the config of a run with a method; its own settings override those of all methods."""
    kind, settings = method_and_settings(text)
    return with_settings(dataclasses.replace(config, algorithm=kind()), settings)


def method_and_settings(text: str) -> tuple[type[AlgorithmConfig], dict[str, Any]]:
    """Return the config class of a method and the values that are stated, among them those of a recipe."""
    name, written = name_and_settings(text)
    kind, stated = _find(name)
    types = setting_types(kind)
    for key in written:
        if key not in types:
            raise unknown_name(f"setting of the method {name}, its training or its encoder", key, types)
    return kind, {**stated, **{key: from_text(types[key], value) for key, value in written.items()}}


def vary_methods(methods: Sequence[str], axes: Sequence[str]) -> tuple[str, ...]:
    """Return every method with every combination of values, "field=a,b,c" each, of the fields that it has."""
    values = dict(map(_axis, axes))
    fields = {text: setting_types(_find(name_and_settings(text)[0])[0]) for text in methods}
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


def _find(name: str) -> tuple[type[AlgorithmConfig], dict[str, Any]]:
    """Return the config class of a method or a recipe, and the settings that a recipe states."""
    recipe = recipe_for_method(name)
    if recipe is None and not name.endswith(".py") and name not in ALGORITHMS.names():
        raise unknown_name("method or recipe", name, {*ALGORITHMS.names(), *RECIPES})
    return (type(recipe.algorithm), recipe.settings) if recipe else (ALGORITHMS.config(name), {})


def _axis(text: str) -> tuple[str, list[str]]:
    key, _, listed = text.partition("=")
    values = [value for value in listed.split(",") if value]
    if not (key and values):
        raise MessiError(f"--vary must be written as field=value,value, but is '{text}'; name at least one value.")
    return key, values
