"""Where pretrained weights come from: the hub that timm downloads from, or a file."""

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import torch
from huggingface_hub import constants
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from messi.core.errors import MessiError

_UNREACHABLE = {"NetworkError", "TimeoutException", "ConnectionError", "Timeout"}
"""Names of the base classes of connection errors; versions of the hub client use different HTTP libraries."""


@contextlib.contextmanager
def cached_if_unreachable() -> Iterator[None]:
    """Let the hub client use only its cache if it cannot connect; otherwise it retries for a minute before it fails."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _is_reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _is_reachable() -> bool:
    """Send one request with the client's settings, such as a proxy or a mirror; any response counts."""
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:  # noqa: BLE001 (other errors are left to the download itself)
        return not _UNREACHABLE.intersection(base.__name__ for base in type(error).__mro__)
    return True


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the weights of a file into a network; raise if any is missing or has another shape."""
    state = _read_state(path)
    wanted = model.state_dict()
    missing = [key for key in wanted if key not in state]
    wrong = [key for key in wanted if key in state and state[key].shape != wanted[key].shape]
    if missing or wrong:
        first = (missing or wrong)[0]
        problem = "is missing" if missing else f"has the shape {list(state[first].shape)}"
        raise MessiError(
            f"{path} does not fit the backbone: '{first}' {problem} ({len(missing)} missing, {len(wrong)} of "
            "another shape).",
            "Give the weights of the backbone named by --backbone.",
        )
    model.load_state_dict({key: state[key] for key in wanted})


def _read_state(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, OSError, RuntimeError, ValueError, EOFError) as error:
        raise MessiError(f"{path} is neither a safetensors file nor a plain state dict of tensors.") from error
    for key in ("state_dict", "model"):
        state = state.get(key, state) if isinstance(state, dict) else {}
    return {key: value for key, value in state.items() if isinstance(value, Tensor)}
