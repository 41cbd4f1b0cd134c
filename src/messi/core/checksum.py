"""Checksums that reveal damage: every file that messi reads back carries one, or another file carries it.

They are no signatures: whoever changes a file on purpose can also write its checksum anew. XXH3 reads 23 GB/s where
SHA-256 reads 1.8, so that checking costs next to nothing; 128 bits leave accidental damage no chance.
"""

import functools
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import xxhash
from safetensors import SafetensorError, safe_open

from messi.core.errors import MessiError
from messi.core.files import read_regular, require_regular

Bytes: TypeAlias = bytes | memoryview

KEY = "checksum"
"""Under which a checksum stands in a document, or in the metadata of a tensor file."""
METADATA = "messi"
"""The entry of a tensor file's metadata that holds its description and its checksum."""
MISMATCH = "its checksum does not fit its content"
_VERSIONS_WITHOUT = "0.1."


Running = xxhash.xxh3_128
"""A checksum that grows with what is written: ``update`` and ``hexdigest``."""


def checksum(parts: Iterable[Bytes]) -> str:
    """Return 32 hex digits that depend on every byte of all parts, one after the other."""
    running = Running()
    for part in parts:
        running.update(part)
    return running.hexdigest()


def values_checksum(values: Mapping[str, Any]) -> str:
    """Return the checksum of JSON values, the same however they are spelled."""
    return checksum([json.dumps(values, sort_keys=True, separators=(",", ":")).encode()])


def parse_values(content: bytes | str) -> dict[str, Any]:
    """Return the values of a JSON object; raise ValueError where it is none."""
    try:
        values = json.loads(content, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    if not isinstance(values, dict):
        raise ValueError("it must hold one JSON object")
    return values


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def file_checksum(path: Path) -> str:
    """Return the checksum of a file; a tensor file states its own, which is compared when its tensors are read."""
    try:
        if path.suffix != ".safetensors":
            return checksum([read_regular(path)])
        require_regular(path)
        with safe_open(path, framework="np") as file:
            return str(parse_values((file.metadata() or {}).get(METADATA, "{}")).get(KEY, ""))
    except (OSError, ValueError, SafetensorError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
        raise MessiError(f"{path} cannot be read: {reason}. Restore it from a copy.") from error


def require_old(path: Path, version: object) -> None:
    """Take a file without a checksum only where a version wrote it that wrote none; raise ValueError otherwise."""
    if not str(version).startswith(_VERSIONS_WITHOUT):
        raise ValueError("it has no checksum")
    _note(path.parent)


@functools.cache
def _note(folder: Path) -> None:
    """Say once of every folder that damage to its files may go unnoticed."""
    logging.getLogger("messi").warning(
        "%s was written by messi 0.1, whose files have no checksums: damage to them may go unnoticed.", folder
    )
