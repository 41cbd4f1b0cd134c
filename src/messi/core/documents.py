"""JSON documents that messi writes and reads back: typed, and with a checksum that reveals damage.

The checksum depends on the values, not on their formatting, and is stored among them under the key ``checksum``.
"""

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from messi.core.checksum import CHECKSUM_KEY, MISMATCH, parse_values, require_version_without_checksums, values_checksum
from messi.core.config import check, field_types
from messi.core.errors import MessiError
from messi.core.files import read_regular, write_text

_Document = TypeVar("_Document")


def write_document(path: Path, document: Any, *, indent: int | None = 2) -> None:
    """Write a dataclass, or JSON values, with a checksum."""
    values = document if isinstance(document, Mapping) else dataclasses.asdict(document)
    plain = json.loads(json.dumps(values, allow_nan=False))  # as they will be read: lists instead of tuples
    write_text(path, json.dumps({**plain, CHECKSUM_KEY: values_checksum(plain)}, indent=indent) + "\n")


def read_values(path: Path, version: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the values of a document; raise ValueError if they do not match its checksum.

    ``version`` returns, for the values, the version of messi that wrote them: a document without a checksum is accepted
    only from a version that wrote none.
    """
    values = parse_values(read_regular(path))
    if CHECKSUM_KEY not in values:
        require_version_without_checksums(path, version(values))
        return values
    rest = {key: value for key, value in values.items() if key != CHECKSUM_KEY}
    if values[CHECKSUM_KEY] != values_checksum(rest):
        raise ValueError(MISMATCH)
    return rest


def parse(annotation: Any, value: Any, where: str = "") -> Any:
    """Convert a JSON value to the type of an annotation; raise a MessiError that names the first part that differs.

    An object for a dataclass has exactly its fields; an object for a typed dict has at least its keys.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.NotRequired:
        return parse(arguments[0], value, where)
    if origin is typing.Annotated:
        parsed = parse(arguments[0], value, where)
        check(where, parsed, annotation)
        return parsed
    if origin in (typing.Union, types.UnionType):
        return _parse_union(arguments, value, where)
    for fits, parser in _PARSERS:
        if fits(annotation, origin):
            return parser(annotation, value, where)
    if annotation is not Any:
        check(where, value, annotation)
    return value


def parse_document(kind: type[_Document], values: Any) -> _Document:
    """Convert JSON values to a document."""
    document: _Document = parse(kind, values)
    return document


def _parse_union(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and types.NoneType in choices:
        return None
    kinds = [choice for choice in choices if choice is not types.NoneType]
    for kind in kinds[:-1]:
        try:
            return parse(kind, value, where)
        except MessiError:
            continue
    return parse(kinds[-1], value, where)


def _parse_dataclass(kind: Any, value: Any, where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    given = _object(value, where)
    if unknown := next((key for key in given if key not in fields), None):
        raise MessiError(f"This version of messi does not know {_joined(where, unknown)}.")
    required = {n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING}
    return kind(**_parse_fields(field_types(kind), required, given, where))


def _parse_typed_dict(kind: Any, value: Any, where: str) -> Any:
    given = _object(value, where)
    return {**given, **_parse_fields(field_types(kind), kind.__required_keys__, given, where)}


def _parse_fields(
    hints: Mapping[str, Any], required: typing.Collection[str], given: Mapping[str, Any], where: str
) -> dict[str, Any]:
    for key in hints:
        if key in required and key not in given:
            raise MessiError(f"{_joined(where, key)} is missing.")
    return {key: parse(hint, given[key], _joined(where, key)) for key, hint in hints.items() if key in given}


def _parse_dict(annotation: Any, value: Any, where: str) -> Any:
    _, kind = typing.get_args(annotation)
    return {key: parse(kind, item, _joined(where, key)) for key, item in _object(value, where).items()}


def _parse_list(annotation: Any, value: Any, where: str) -> Any:
    if not isinstance(value, list):
        raise MessiError(f"{where} must be a list, but is {_shown(value)}.")
    kinds = typing.get_args(annotation)
    if typing.get_origin(annotation) is list or kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise MessiError(f"{where} must be a list of {len(kinds)} values, but has {len(value)}.")
    items = [
        parse(kind, item, f"{where}[{place}]") for place, (kind, item) in enumerate(zip(kinds, value, strict=True))
    ]
    return items if typing.get_origin(annotation) is list else tuple(items)


def _parse_float(_annotation: Any, value: Any, where: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise MessiError(f"{where} must be a finite number, but is {_shown(value)}.")
    return float(value)


_PARSERS: tuple[tuple[Callable[[Any, Any], bool], Callable[[Any, Any, str], Any]], ...] = (
    (lambda annotation, _: dataclasses.is_dataclass(annotation), _parse_dataclass),
    (lambda annotation, _: typing.is_typeddict(annotation), _parse_typed_dict),
    (lambda _, origin: origin is dict, _parse_dict),
    (lambda _, origin: origin in (list, tuple), _parse_list),
    (lambda annotation, _: annotation is float, _parse_float),
)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MessiError(f"{where or 'It'} must be an object with names and values, but is {_shown(value)}.")
    return value


def _joined(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
