"""Tensors and a JSON description in one safetensors file: no pickle, written atomically, checked when read."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from messi.core.errors import MessiError
from messi.core.files import replace_atomically

_KEY = "messi"


def write_tensors(path: Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Write both atomically: ``path`` is either the old file or the whole new one."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    metadata = {_KEY: json.dumps(description)}

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
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError as error:
        raise MessiError(f"There is no file {path}; give the folder of a run or a model file.") from error
    except (SafetensorError, OSError) as error:
        raise MessiError(
            f"{path} is damaged or cut short, or no file of messi ({error}). "
            "If it is a run's last.safetensors, that run starts anew once the file is removed."
        ) from error
    if _KEY not in metadata:
        raise MessiError(f"{path} was not written by messi; give the folder of a run or a model file of it.")
    return tensors, json.loads(metadata[_KEY])
