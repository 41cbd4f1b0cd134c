"""Tensors and a JSON description in one safetensors file: no pickle, written atomically, checked when read."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from messi.core.checksum import KEY, METADATA, MISMATCH, Bytes, canonical, checksum, parse_values, require_old
from messi.core.errors import MessiError
from messi.core.files import replace_atomically
from messi.core.regular import require_regular

_DAMAGE = (SafetensorError, OSError, ValueError, RuntimeError, MemoryError, OverflowError)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write both atomically: ``path`` is either the old file or the whole new one."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    plain = json.loads(json.dumps(description))  # as it will be read: tuples are lists
    # One entry: safetensors writes several in any order, and the same state must give the same bytes.
    metadata = {METADATA: json.dumps({**plain, KEY: checksum(_parts(contiguous, plain))})}

    def write(temporary: Path) -> None:
        temporary.touch()  # for whom the umask says; safetensors makes files that nobody but their owner may read
        mode = temporary.stat().st_mode
        try:
            save_file(contiguous, temporary, metadata=metadata)
        except SafetensorError as error:  # safetensors reports a full disk as its own error
            raise OSError(None, str(error)) from error
        temporary.chmod(mode)

    replace_atomically(path, write)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote."""
    if not path.exists():
        raise MessiError(f"There is no file {path}; give the folder of a run or a model file.")
    try:
        require_regular(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if METADATA not in metadata:
            raise MessiError(f"{path} was not written by messi; give the folder of a run or a model file of it.")
        description = parse_values(metadata[METADATA])
        stated = description.pop(KEY, None)
        if stated is None:
            require_old(path, description.get("version"))
        elif stated != checksum(_parts(tensors, description)):
            raise ValueError(MISMATCH)
    except _DAMAGE as error:
        raise MessiError(
            f"{path} is damaged or cut short, or no file of messi ({' '.join(str(error).split())}). "
            "Restore it from a copy; a run whose last.safetensors is removed starts from the beginning."
        ) from error
    return tensors, description


def _parts(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> Iterator[Bytes]:
    """Yield everything that a checksum is over: the description, then name, kind and bytes of every tensor."""
    yield canonical(description)
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode("utf-8", "surrogatepass")
        yield tensor.reshape(-1).view(torch.uint8).numpy().data
