"""The state that training continues from: with it, a killed run ends exactly as one that was never disturbed."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from messi.algorithms._base import Algorithm
from messi.core.tensorfile import read_tensors, write_tensors
from messi.engine.ledger import Ledger
from messi.engine.stepper import AdamStepper


def save_checkpoint(path: Path, *, step: int, algorithm: Algorithm, stepper: AdamStepper, ledger: Ledger) -> None:
    """Write everything that changes during training. Random streams are functions of the step: nothing to save."""
    optimizer = stepper.optimizer.state_dict()
    tensors = {f"algorithm/{name}": tensor for name, tensor in algorithm.state_dict().items()}
    for index, state in optimizer["state"].items():
        tensors |= {f"optimizer/{index}/{name}": tensor for name, tensor in state.items()}
    if ledger.rows:
        tensors["pending"] = torch.stack(ledger.rows)
    description = {
        "step": step,
        "records_size": ledger.writer.size,
        "optimizer": optimizer["param_groups"],
        "terms": ledger.terms,
    }
    ledger.writer.sync()
    write_tensors(path, tensors, description)


def load_checkpoint(path: Path, *, algorithm: Algorithm, stepper: AdamStepper, ledger: Ledger) -> int:
    """Restore what :func:`save_checkpoint` wrote and return its step; without a file, start at step 0."""
    if not path.exists():
        ledger.open(0)
        return 0
    tensors, description = read_tensors(path)
    algorithm.load_state_dict(_under("algorithm/", tensors.items()))
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in _under("optimizer/", tensors.items()).items():
        index, name = key.split("/")
        state.setdefault(int(index), {})[name] = tensor
    stepper.optimizer.load_state_dict({"state": state, "param_groups": description["optimizer"]})
    ledger.terms = description["terms"]
    ledger.rows = list(tensors["pending"]) if "pending" in tensors else []
    ledger.open(description["records_size"])
    step: int = description["step"]
    return step


def _under(prefix: str, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors if name.startswith(prefix)}
