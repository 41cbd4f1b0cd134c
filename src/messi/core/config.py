"""Configs are frozen dataclasses: checked when created, saved as plain dicts, identified by a fingerprint."""

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from messi.core.errors import MessiError, unknown_name
from messi.core.registry import Registry, content_digest


@dataclass(frozen=True)
class Bounds:
    """The allowed range of a number: ``Annotated[float, Bounds(minimum=0)]``."""

    minimum: float = -math.inf
    maximum: float = math.inf
    above: float = -math.inf
    """An exclusive minimum."""

    def __contains__(self, value: float) -> bool:
        return self.minimum <= value <= self.maximum and value > self.above and -math.inf < value < math.inf

    def __str__(self) -> str:
        lower = f"above {self.above:g}" if self.above > -math.inf else f"at least {self.minimum:g}"
        return lower if self.maximum == math.inf else f"{lower} and at most {self.maximum:g}"


@dataclass(frozen=True)
class LogUniform:
    """Search range of a sweep: ``base`` to a power drawn uniformly between ``low`` and ``high``."""

    low: float
    high: float
    base: float = 10

    def at(self, position: float) -> float:
        """Return the value at a position from 0 to 1."""
        return float(self.base ** (self.low + position * (self.high - self.low)))

    def __str__(self) -> str:
        return f"{self.base:g}^U({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class Uniform:
    """Search range of a sweep: uniform between ``low`` and ``high``."""

    low: float
    high: float

    def at(self, position: float) -> float:
        """Return the value at a position from 0 to 1."""
        return self.low + position * (self.high - self.low)

    def __str__(self) -> str:
        return f"U({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class OneOf:
    """Search range of a sweep: one of a few values."""

    values: tuple[Any, ...]

    def at(self, position: float) -> Any:
        """Return the value at a position from 0 to 1, at which every value has an equal share."""
        return self.values[int(position * len(self.values))]

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.values)) + "}"


Search = LogUniform | Uniform | OneOf
"""The search range in the annotation of a hyper-parameter: ``Annotated[float, LogUniform(-1, 1)]``."""


@dataclass(frozen=True)
class SmallImages:
    """The search range with a small network, if it differs from that with a large one; None: not searched."""

    search: Search | None

    def __str__(self) -> str:
        return f"small images: {self.search or 'not searched'}"


@dataclass(frozen=True)
class Added:
    """Marks a field that earlier versions did not have: ``Annotated[int, Added()]``.

    It is saved only if it differs from its default, so that configs without it keep their fingerprints.
    """


OPEN: Any = None
"""The default of a field that is filled in later; it is typed ``Any`` so that the field keeps its concrete type."""

ConfigType = TypeVar("ConfigType", bound="Config")


_field_types: dict[type, dict[str, Any]] = {}
_field_checks: "dict[type, list[tuple[str, bool, Check]]]" = {}
_added_fields: dict[type, dict[str, Any]] = {}


def field_types(cls: type) -> dict[str, Any]:
    """Return the annotations of a class's fields by name; cached, because a plan creates thousands of configs."""
    if cls not in _field_types:
        _field_types[cls] = typing.get_type_hints(cls, include_extras=True)
    return _field_types[cls]


def _added(cls: Any) -> dict[str, Any]:
    """Return the defaults of the fields that are marked as added, by name; cached."""
    if cls not in _added_fields:
        marked = {name for name, annotation in field_types(cls).items() if Added() in typing.get_args(annotation)[1:]}
        _added_fields[cls] = {field.name: field.default for field in dataclasses.fields(cls) if field.name in marked}
    return _added_fields[cls]


def searches(cls: type, *, small: bool = False) -> dict[str, Search]:
    """Return the search ranges of a config's fields by name, with a small network or a large one."""
    found = {name: typing.get_args(annotation)[1:] for name, annotation in field_types(cls).items()}
    ranges = {name: extra for name, extras in found.items() for extra in extras if isinstance(extra, Search)}
    special = {
        name: extra.search for name, extras in found.items() for extra in extras if isinstance(extra, SmallImages)
    }
    chosen = {**ranges, **special} if small else ranges
    return {name: search for name, search in chosen.items() if search}


def value_type(annotation: Any) -> Any:
    """Return the type of a field without its bounds and search ranges, and without the None of an optional one."""
    if typing.get_origin(annotation) is typing.Annotated:
        return value_type(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(value_type(choice) for choice in typing.get_args(annotation) if choice is not types.NoneType)
    return annotation


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of every config. A config with a registry is saved with the name of its registered entry."""

    registry: ClassVar[Registry | None] = None
    earlier: ClassVar[Mapping[str, Any]] = {}
    """What fields mean that a saved config of an earlier version lacks, if that is not their default."""

    def __post_init__(self) -> None:
        """Check every field against the bounds and choices in its annotation; an open field may stay None."""
        for name, is_open, check in field_checks(type(self)):
            value = getattr(self, name)
            if value is not None or not is_open:
                check(name, value)
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise MessiError(f"{name} must be at most {_LARGEST:g}, but is {value!r}.")

    @property
    def name(self) -> str:
        """The name of the registered entry that this config belongs to; for a user's own file, its path."""
        module = type(self).__module__
        return module if module.endswith(".py") else module.rpartition(".")[2]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; :meth:`from_dict` of the same class restores the config."""
        values = {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        for name, default in _added(type(self)).items():
            if getattr(self, name) == default:
                del values[name]
        return {"name": self.name, **self._content(), **values} if self.registry else values

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, files: Collection[str | Path] = ()) -> Self:
        """Restore the config that :meth:`to_dict` returned; an unknown key is an error.

        The values may come from an untrusted file. Of the code outside messi, only ``files`` are imported:
        the caller's own files that define a method or a data set.
        """
        if not isinstance(values, dict):
            raise MessiError(f"The settings of {cls.__qualname__} must be names with values, but are {values!r}.")
        values = dict(values)
        if cls.registry:
            name = cls.registry.permitted(values.pop("name", None), values.pop("content", None), files)
            return typing.cast("Self", _build(cls.registry.config(name), values, files))
        return _build(cls, values, files)

    def _content(self) -> dict[str, str]:
        """Return the digest of a user's own file, to detect changes; for messi's own files its version suffices."""
        return {"content": content_digest(self.name)} if self.name.endswith(".py") else {}

    def fingerprint(self) -> str:
        """Return 12 hex digits that change with any value in the config."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as text by dotted name."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return flat


def _build(cls: type[ConfigType], values: dict[str, Any], files: Collection[str | Path]) -> ConfigType:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values = {**cls.earlier, **values}
    for key in values:
        if key not in fields:
            raise unknown_name(f"setting of {cls.__qualname__}", key, fields)
    for key, field in fields.items():
        if key not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise MessiError(f"The settings of {cls.__qualname__} must include '{key}', which is missing.")
    return cls(**{key: _revive(field_types(cls)[key], value, files) for key, value in values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _revive(annotation: Any, value: Any, files: Collection[str | Path]) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _revive(arguments[0], value, files)
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return annotation.from_dict(value, files=files)
    if not isinstance(value, list):
        return value
    kind = arguments[0] if origin is tuple and arguments[1:] == (...,) else Any
    return tuple(_revive(kind, item, files) for item in value)


def from_text(annotation: Any, text: str) -> Any:
    """Return the value of a field that is written as text; text that does not fit is returned, for ``check`` to refuse.

    In a union, the first kind that fits is taken; "none" is None. Several values are separated by commas.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return from_text(arguments[0], text)
    if origin in (typing.Union, types.UnionType):
        values = (from_text(kind, text) for kind in arguments)
        return next((value for value in values if value != text), text)
    if origin is tuple and arguments[1:] == (...,):
        return tuple(from_text(arguments[0], part) for part in text.split(","))
    if origin is typing.Literal or annotation in (bool, types.NoneType):
        choices = {str(value): value for value in arguments} or {"true": True, "false": False, "none": None}
        return choices.get(text if arguments else text.lower(), text)
    try:
        return annotation(text) if annotation in (int, float) else text
    except ValueError:
        return text


Check = Callable[[object, Any], None]
"""Gets the name of a value, which is formatted only for an error, and the value; raises if it is not allowed."""


def field_checks(cls: Any) -> list[tuple[str, bool, Check]]:
    """Return the name of every field, whether it may stay open, and the check of its values; cached."""
    if cls not in _field_checks:
        names = [(field.name, field.default is OPEN) for field in dataclasses.fields(cls)]
        _field_checks[cls] = [(name, is_open, checker(field_types(cls)[name])) for name, is_open in names]
    return _field_checks[cls]


def checker(annotation: Any) -> Check:
    """Return a check that a value has the type of an annotation, is one of its choices and is within its bounds."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _bounds_checker(checker(arguments[0]), [extra for extra in arguments[1:] if isinstance(extra, Bounds)])
    if origin in (typing.Union, types.UnionType):
        return _union_checker([checker(choice) for choice in arguments])
    if origin is typing.Literal:
        return _choice_checker(arguments)
    return _type_checker(origin or annotation, arguments)


def _bounds_checker(checked: Check, bounds: Sequence[Bounds]) -> Check:
    def check_bounds(name: object, value: Any) -> None:
        checked(name, value)
        for allowed in bounds:
            if value not in allowed:
                wanted = allowed if math.isfinite(value) else "a finite number"
                raise MessiError(f"{name} must be {wanted}, but is {value!r}.")

    return check_bounds


def _union_checker(choices: Sequence[Check]) -> Check:
    def check_union(name: object, value: Any) -> None:
        for checked in choices if value is not None else ():
            checked(name, value)

    return check_union


def _choice_checker(choices: Collection[Any]) -> Check:
    def check_choice(name: object, value: Any) -> None:
        if value not in choices:
            raise MessiError(f"{name} must be one of {', '.join(map(repr, choices))}, but is {value!r}.")

    return check_choice


def _type_checker(kind: Any, arguments: tuple[Any, ...]) -> Check:
    words, kinds = _TYPES.get(kind, ("anything", (object,)))

    def check_type(name: object, value: Any) -> None:
        if not isinstance(value, kinds) or (isinstance(value, bool) and int in kinds):
            raise MessiError(f"{name} must be {words}, but is {value!r}.")

    return (
        _items_checker(check_type, checker(arguments[0])) if kind is tuple and arguments[1:] == (...,) else check_type
    )


def _items_checker(check_tuple: Check, check_item: Check) -> Check:
    def check_items(name: object, value: Any) -> None:
        check_tuple(name, value)
        for item in value:
            check_item(f"Each value of {name}", item)

    return check_items


_LARGEST = 10**18
"""Tensors hold 64-bit integers."""
_TYPES: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("text", (str,)),
    tuple: ("a tuple such as ('a', 'b')", (tuple,)),
}
