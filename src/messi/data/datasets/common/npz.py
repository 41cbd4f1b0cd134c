"""Reading ``.npz`` and ``.npy`` files: the header of an array is compared with the file before memory is allocated."""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy

from messi.core.errors import MessiError, unknown_name
from messi.core.files import open_regular
from messi.core.info import physical_memory
from messi.core.text import bytes_text

_DAMAGE = (
    *(EOFError, OSError, RuntimeError, SyntaxError, TypeError, ValueError, KeyError, OverflowError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)  # numpy parses a header as Python
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_SHARE = 0.5
"""Fraction of the machine's memory that an array may take: it is copied once."""


def read_npz(path: Path, names: Sequence[str], *, optional: Sequence[str] = ()) -> dict[str, Any]:
    """Return the named arrays of an .npz file, and the optional ones that it contains."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            for name in names:
                if name not in members:
                    raise unknown_name(f"array in {path}", name, members)
            wanted = [name for name in (*names, *optional) if name in members]
            return {name: _read(archive, members[name]) for name in wanted}
    except MemoryError as error:
        raise MessiError(f"{path} cannot be read: {error}; save fewer examples to it.") from error
    except _DAMAGE as error:
        reason = f"{error.strerror}; " if isinstance(error, OSError) and error.strerror else ""
        raise MessiError(
            f"{path} cannot be read: {reason}it must be an .npz file of plain arrays, without objects."
        ) from error


def read_npy(path: Path) -> Any:
    """Return the array of an .npy file."""
    try:
        with open_regular(path) as file:
            size = _checked_size(file, path.stat().st_size)
        _require_memory(path.name, size)
        with open_regular(path) as file:
            return npy.read_array(file, allow_pickle=False)
    except MemoryError as error:
        raise MessiError(f"{path} cannot be read: {error}; save fewer examples to it.") from error
    except _DAMAGE as error:
        reason = f"{error.strerror}; " if isinstance(error, OSError) and error.strerror else ""
        raise MessiError(f"{path} cannot be read: {reason}it must be an .npy file of a plain array.") from error


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """Return one array if its header agrees with the archive."""
    with archive.open(member) as file:
        size = _checked_size(file, member.file_size)
    _require_memory(member.filename, size)
    with archive.open(member) as file:
        array = npy.read_array(file, allow_pickle=False)
        if file.read(1):  # reading to the end compares the archive's own checksum
            raise ValueError("There is more than one array.")
    return array


def _checked_size(file: IO[bytes], total: int) -> int:
    """Return the number of bytes of an array if its header agrees with the size of its file."""
    shape, _, dtype = _HEADERS.get(npy.read_magic(file), _refuse)(file)
    size: int = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or file.tell() + size != total:
        raise ValueError("The header does not fit its array.")
    return size


def _refuse(_: object) -> Any:
    raise ValueError("The version of the array's format is unknown.")


def _require_memory(name: str, size: int) -> None:
    memory = physical_memory()
    if memory is not None and size > _SHARE * memory:
        raise MemoryError(f"'{name}' takes {bytes_text(size)}, and this machine has {bytes_text(memory)} of memory")
