"""JSON documents that messi writes and reads back: typed, and with a checksum that reveals damage.

The checksum depends on the values, not on their formatting, and is stored among them under the key ``checksum``.
"""

import contextlib
import dataclasses
import functools
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from messi.core.checksum import CHECKSUM_KEY, MISMATCH, parse_values, require_version_without_checksums, values_checksum
from messi.core.config import Check, checker, field_types
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
    return checked_values(path, read_regular(path), version)


def checked_values(path: Path, content: bytes, version: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the values of a document with this content, as :func:`read_values` does."""
    values = parse_values(content)
    if CHECKSUM_KEY not in values:
        require_version_without_checksums(path, version(values))
        return values
    rest = {key: value for key, value in values.items() if key != CHECKSUM_KEY}
    if values[CHECKSUM_KEY] != values_checksum(rest):
        raise ValueError(MISMATCH)
    return rest


def parse(kind: Any, value: Any, where: str = "") -> Any:
    """Convert JSON values to a dataclass or typed dict; raise a MessiError that names the first part that differs.

    An object for a dataclass has exactly its fields; an object for a typed dict has at least its keys.
    """
    return _class_parser(kind)(value, where)


def parse_document(kind: type[_Document], values: Any) -> _Document:
    """Convert JSON values to a document."""
    document: _Document = parse(kind, values)
    return document


_Parse = Callable[[Any, Any], Any]
"""Gets a value and its place, which is formatted only for an error; returns the converted value."""


class _Place(tuple[Any, Any]):
    """The place of a value in a document: that of the value that contains it, and its key or position there."""

    __slots__ = ()

    def __str__(self) -> str:
        where, key = self
        if isinstance(key, int):
            return f"{where}[{key}]"
        return f"{where}.{key}" if str(where) else str(key)


@functools.cache  # a page reads thousands of documents, but few kinds of them
def _class_parser(kind: Any) -> _Parse:
    """Return the parser of a dataclass or typed dict."""
    hints = {name: _parser(hint) for name, hint in field_types(kind).items()}
    if typing.is_typeddict(kind):
        return _typed_dict_parser(hints, kind.__required_keys__)
    fields = dataclasses.fields(kind)
    required = {field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING}
    return _dataclass_parser(kind, {field.name: hints[field.name] for field in fields}, required)


def _dataclass_parser(kind: Any, fields: Mapping[str, _Parse], required: typing.Collection[str]) -> _Parse:
    def parse_dataclass(value: Any, where: Any) -> Any:
        given = _object(value, where)
        if unknown := next((key for key in given if key not in fields), None):
            raise MessiError(f"This version of messi does not know {_Place((where, unknown))}.")
        return kind(**_parse_fields(fields, required, given, where))

    return parse_dataclass


def _typed_dict_parser(fields: Mapping[str, _Parse], required: typing.Collection[str]) -> _Parse:
    def parse_typed_dict(value: Any, where: Any) -> Any:
        given = _object(value, where)
        return {**given, **_parse_fields(fields, required, given, where)}

    return parse_typed_dict


def _parse_fields(
    fields: Mapping[str, _Parse], required: typing.Collection[str], given: Mapping[str, Any], where: Any
) -> dict[str, Any]:
    for key in fields:
        if key in required and key not in given:
            raise MessiError(f"{_Place((where, key))} is missing.")
    return {key: parser(given[key], _Place((where, key))) for key, parser in fields.items() if key in given}


def _parser(annotation: Any) -> _Parse:
    """Return the parser of any annotation."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if make := _PARSERS.get(origin):
        return make(*arguments)
    if origin is typing.Annotated:
        return _checked_parser(_parser(arguments[0]), checker(annotation))
    if dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation):
        return _class_parser(annotation)
    return _parse_float if annotation is float else _checked_parser(_parse_any, checker(annotation))


def _checked_parser(parser: _Parse, check: Check) -> _Parse:
    def parse_checked(value: Any, where: Any) -> Any:
        parsed = parser(value, where)
        check(where, parsed)
        return parsed

    return parse_checked


def _union_parser(*choices: Any) -> _Parse:
    *others, last = [_parser(choice) for choice in choices if choice is not types.NoneType]
    optional = types.NoneType in choices

    def parse_union(value: Any, where: Any) -> Any:
        if optional and value is None:
            return None
        for parser in others:
            with contextlib.suppress(MessiError):
                return parser(value, where)
        return last(value, where)

    return parse_union


def _dict_parser(_keys: Any, kind: Any) -> _Parse:
    parser = _parser(kind)

    def parse_dict(value: Any, where: Any) -> Any:
        return {key: parser(item, _Place((where, key))) for key, item in _object(value, where).items()}

    return parse_dict


def _list_parser(kind: Any) -> _Parse:
    parser = _parser(kind)

    def parse_list(value: Any, where: Any) -> Any:
        return [parser(item, _Place((where, place))) for place, item in enumerate(_list(value, where))]

    return parse_list


def _tuple_parser(*kinds: Any) -> _Parse:
    if kinds[-1] is Ellipsis:
        parse_items = _list_parser(kinds[0])
        return lambda value, where: tuple(parse_items(value, where))
    parsers = [_parser(kind) for kind in kinds]

    def parse_tuple(value: Any, where: Any) -> Any:
        if len(_list(value, where)) != len(parsers):
            raise MessiError(f"{where} must be a list of {len(parsers)} values, but has {len(value)}.")
        pairs = enumerate(zip(parsers, value, strict=True))
        return tuple([parser(item, _Place((where, place))) for place, (parser, item) in pairs])

    return parse_tuple


def _parse_float(value: Any, where: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise MessiError(f"{where} must be a finite number, but is {_shown(value)}.")
    return float(value)


def _parse_any(value: Any, _where: Any) -> Any:
    return value


_PARSERS: dict[Any, Callable[..., _Parse]] = {
    typing.NotRequired: _parser,
    typing.Union: _union_parser,
    types.UnionType: _union_parser,
    dict: _dict_parser,
    list: _list_parser,
    tuple: _tuple_parser,
}
"""By the origin of an annotation; they get its arguments."""


def _list(value: Any, where: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MessiError(f"{where} must be a list, but is {_shown(value)}.")
    return value


def _object(value: Any, where: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MessiError(f"{str(where) or 'It'} must be an object with names and values, but is {_shown(value)}.")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
