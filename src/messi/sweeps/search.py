"""Random search: the settings of each draw, from the ranges that are declared next to every hyper-parameter.

Every field has its own random numbers: draw k of a field depends on the search seed, the name of the field and k alone.
So the same seed gives the same value regardless of what else is searched, and methods share the draws of shared fields.
Draw 0 is the defaults, as in DomainBed.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from messi.core.config import (
    LogUniform,
    OneOf,
    Search,
    Uniform,
    checker,
    field_types,
    from_text,
    searches,
    value_type,
)
from messi.core.errors import MessiError, unknown_name
from messi.core.seeding import derive_seed
from messi.engine.config import RunConfig
from messi.models.encoder import SMALL

PARTS = ("algorithm", "encoder", "training")
"""The parts of a run's config whose fields can be searched; no two of them have a field of the same name."""
_BITS = 53
"""The digits of a float."""


def search_space(config: RunConfig, changes: Sequence[str] = ()) -> dict[str, Search]:
    """Return the declared search ranges of a run by field, overridden and extended by ``changes``.

    A change is ``field=low..high``, on the declared scale of the field or else linear, ``field=log:low..high``, or
    ``field=a,b,c``. A change of a field that only other methods have is ignored.
    """
    small = config.resolved().encoder.backbone in SMALL
    space = {name: search for part in PARTS for name, search in searches(_type(config, part), small=small).items()}
    types = _field_types(config)
    for change in changes:
        name, _, text = change.partition("=")
        if name in types:
            space[name] = _parse(name, text, types[name], space.get(name))
    return space


def check_changes(configs: Sequence[RunConfig], changes: Sequence[str]) -> None:
    """Raise for a change of a field that none of the runs has."""
    known = {name for config in configs for name in _field_types(config)}
    for change in changes:
        name = change.partition("=")[0]
        if name not in known:
            raise unknown_name("hyper-parameter", name, known)


def draw(config: RunConfig, number: int, *, seed: int, space: Mapping[str, Search]) -> RunConfig:
    """Return the config with the values of a draw; draw 0 is the config itself."""
    return with_values(config, drawn_values(config, number, seed=seed, space=space))


def drawn_values(config: RunConfig, number: int, *, seed: int, space: Mapping[str, Search]) -> dict[str, Any]:
    """Return the values of a draw by field; draw 0 changes none."""
    if number == 0:
        return {}
    types = _field_types(config)
    return {name: _value(search.at(position(seed, name, number)), types[name]) for name, search in space.items()}


def position(seed: int, field: str, number: int) -> float:
    """Return the random number from 0 to 1 of one draw of one field."""
    return math.ldexp(derive_seed("search", seed, field, number) >> (63 - _BITS), -_BITS)


def with_values(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return the config with some fields of its method, encoder or training changed."""
    parts = {}
    for part in PARTS:
        own = {name: value for name, value in values.items() if name in field_types(_type(config, part))}
        parts[part] = dataclasses.replace(getattr(config, part), **own)
    return dataclasses.replace(config, **parts)


def _type(config: RunConfig, part: str) -> type:
    return type(getattr(config, part))


def _field_types(config: RunConfig) -> dict[str, Any]:
    names = {part: {f.name for f in dataclasses.fields(getattr(config, part))} for part in PARTS}
    return {n: t for part in PARTS for n, t in field_types(_type(config, part)).items() if n in names[part]}


def _value(value: Any, annotation: Any) -> Any:
    """Round a whole number down, as DomainBed does, and other numbers to four digits, so that people can copy them."""
    if not isinstance(value, float):
        return value
    return math.floor(value) if value_type(annotation) is int else float(f"{value:.4g}")


def _parse(name: str, text: str, annotation: Any, declared: Search | None) -> Search:
    logarithmic = text.startswith("log:") or isinstance(declared, LogUniform)
    bare = text.removeprefix("log:")
    low, between, high = bare.partition("..")
    if not between:
        if not all(bare.split(",")):
            raise MessiError(f"--search {name}={text} is empty; write {name}=LOW..HIGH or {name}=A,B,C.")
        return OneOf(tuple(_read(name, one, annotation) for one in bare.split(",")))
    if value_type(annotation) not in (int, float):
        raise MessiError(f"--search {name}={text}: {name} is not a number; write {name}=A,B,C.")
    first, last = (_read(name, end, annotation) for end in (low, high))
    if not first < last:
        raise MessiError(f"--search {name}={text} is an empty range; the first number must be below the second.")
    end = last + 1 if value_type(annotation) is int else last  # whole numbers are rounded down
    if not logarithmic:
        return Uniform(first, end)
    if first <= 0:
        raise MessiError(f"--search {name}={text} is logarithmic, so both numbers must be above 0.")
    return LogUniform(math.log10(first), math.log10(end))


def _read(name: str, text: str, annotation: Any) -> Any:
    value = from_text(annotation, text)
    checker(annotation)(name, value)
    return value
