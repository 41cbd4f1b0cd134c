"""Tensors and a JSON description in one safetensors file: no pickle, written atomically, checked when read."""

import json
import mmap
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from messi.core.checksum import (
    CHECKSUM_KEY,
    METADATA_KEY,
    MISMATCH,
    checksum,
    parse_values,
    require_version_without_checksums,
)
from messi.core.errors import MessiError
from messi.core.files import replace_atomically, require_regular

_BLANK = "0" * 32
_PLACE = re.compile(rb'\\"checksum\\": \\"([0-9a-f]{32})\\"')  # JSON inside a JSON string
_DAMAGE = (SafetensorError, OSError, ValueError, RuntimeError, MemoryError, OverflowError)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write tensors and description atomically: ``path`` is either the old file or the complete new one."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in arbitrary order, and the same state must give the same bytes.
    metadata = {METADATA_KEY: json.dumps({CHECKSUM_KEY: _BLANK, **description})}

    def write(temporary: Path) -> None:
        temporary.touch()  # with the permissions of the umask; safetensors creates files that only their owner may read
        mode = temporary.stat().st_mode
        try:
            save_file(contiguous, temporary, metadata=metadata)
        except SafetensorError as error:  # safetensors reports a full disk as its own error
            raise OSError(None, str(error)) from error
        temporary.chmod(mode)
        with temporary.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            place, whole = find_checksum(content)
            content[place : place + len(whole)] = whole.encode()

    replace_atomically(path, write)


def find_checksum(content: bytes | mmap.mmap) -> tuple[int, str]:
    """Return where a file stores its checksum, and the correct value: the checksum of the file with zeros there."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = content[:end]
    found = _PLACE.search(header)
    if found is None:
        raise ValueError("it has no checksum")
    place = found.start(1)
    blank = header[:place] + _BLANK.encode() + header[place + len(_BLANK) :]
    with memoryview(content) as view, view[end:] as rest:
        return place, checksum([blank, rest])


def tensors_checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return a checksum of the names and values of tensors, regardless of their order."""
    return checksum(part for name in sorted(tensors) for part in (name.encode(), tensor_bytes(tensors[name])))


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor's values."""
    return tensor.detach().cpu().flatten().view(torch.uint8).numpy().data


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description that :func:`write_tensors` wrote."""
    if not path.exists():
        raise MessiError(f"There is no file {path}; give the folder of a run or a model file.")
    try:
        require_regular(path)
        # xxh3 reads the file without Python's global lock, while this thread copies the tensors.
        with ThreadPoolExecutor(1) as executor, safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if METADATA_KEY not in metadata:
                raise MessiError(f"{path} was not written by messi; give the folder of a run or its model file.")
            description = parse_values(metadata[METADATA_KEY])
            stated = description.pop(CHECKSUM_KEY, None)
            if stated is None:
                require_version_without_checksums(path, description.get("version"))
            whole = executor.submit(_checksum, path) if stated else None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            if whole and whole.result() != stated:
                raise ValueError(MISMATCH)
    except _DAMAGE as error:
        advice = "Give the folder of a run or a model file; if this is one, restore it from a copy."
        if path.with_name("run.json").exists():  # so it is in the folder of a run
            advice = "Restore it from a copy; a run whose last.safetensors is removed starts from the beginning."
        raise MessiError(
            f"{path} is damaged, truncated or not a file of messi ({' '.join(str(error).split())}). {advice}"
        ) from error
    return tensors, description


def _checksum(path: Path) -> str:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return find_checksum(content)[1]
