"""Random search: the settings of each draw, from the ranges that are declared next to every hyper-parameter.

Every field has its own random numbers: draw k of a field depends on the search seed, the name of the field and k alone.
So the same seed gives the same value regardless of what else is searched, and methods share the draws of shared fields.
Draw 0 is the defaults, as in DomainBed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from messi.core.config import (
    LogUniform,
    OneOf,
    Search,
    Uniform,
    checker,
    from_text,
    searches,
    value_type,
)
from messi.core.errors import MessiError, unknown_name
from messi.core.seeding import derive_seed
from messi.engine.config import RunConfig
from messi.engine.settings import PARTS, setting_types, with_settings
from messi.models.encoder import SMALL

_BITS = 53
"""The digits of a float."""


def search_space(config: RunConfig, changes: Sequence[str] = ()) -> dict[str, Search]:
    """Return the declared search ranges of a run by field, overridden and extended by ``changes``.

    A change is ``field=low..high``, on the declared scale of the field or else linear, ``field=log:low..high``, or
    ``field=a,b,c``. A change of a field that only other methods have is ignored.
    """
    encoder = config.resolved().encoder
    small = encoder.backbone in SMALL or encoder.tuning.kind == "head"  # where only small networks train
    kinds = [type(getattr(config, part)) for part in PARTS]
    space = {name: search for kind in kinds for name, search in searches(kind, small=small).items()}
    types = setting_types(type(config.algorithm))
    for change in changes:
        name, _, text = change.partition("=")
        if name in types:
            space[name] = _parse(name, text, types[name], space.get(name))
    return space


def check_changes(configs: Sequence[RunConfig], changes: Sequence[str]) -> None:
    """Raise for a change of a field that none of the runs has."""
    known = {name for config in configs for name in setting_types(type(config.algorithm))}
    for change in changes:
        name = change.partition("=")[0]
        if name not in known:
            raise unknown_name("hyper-parameter", name, known)


def draw(config: RunConfig, number: int, *, seed: int, space: Mapping[str, Search]) -> RunConfig:
    """Return the config with the values of a draw; draw 0 is the config itself."""
    return with_settings(config, drawn_values(config, number, seed=seed, space=space))


def drawn_values(config: RunConfig, number: int, *, seed: int, space: Mapping[str, Search]) -> dict[str, Any]:
    """Return the values of a draw by field; draw 0 changes none."""
    if number == 0:
        return {}
    types = setting_types(type(config.algorithm))
    return {name: _value(search.at(position(seed, name, number)), types[name]) for name, search in space.items()}


def position(seed: int, field: str, number: int) -> float:
    """Return the random number from 0 to 1 of one draw of one field."""
    return math.ldexp(derive_seed("search", seed, field, number) >> (63 - _BITS), -_BITS)


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
