"""What a table says of a finished model beyond its result: measured once, kept beside the run, then read from there.

So a table can be made again, and with other options, where the models are not at hand.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from messi.algorithms._base import Algorithm
from messi.core.documents import read_values, write_document
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.data.loader import Loader
from messi.experiments._reopened import reopened
from messi.experiments._results import Results
from messi.reports.paper_tables import Cell
from messi.sweeps.plan import Label, Outcome

Found = TypeVar("Found")
"""A dataclass whose fields are tensors."""


@dataclass(frozen=True)
class Measurement(Generic[Found]):
    """Something to find out about a model."""

    name: str
    """Of the file in the folder of a run, without its ending."""
    what: str
    """For people."""
    settings: Mapping[str, float]
    """What the numbers depend on; where the file has others, it is measured again."""
    measure: Callable[[Algorithm, Loader], Found]
    kind: Callable[..., Found]
    """Makes the same of tensors that were kept."""


@dataclass(frozen=True)
class Measured(Results, Generic[Found]):
    """Results that count a run as done where it is measured, too; the others have the reason."""

    found: Mapping[Path, Found]
    """By the folder of a run."""

    def state(self, **labels: Label) -> Cell:
        """Return a cell without a value that says what became of the runs with some labels, and of measuring them."""
        cell = super().state(**labels)
        reasons = [outcome.reason for outcome in self.where(**labels) if outcome.reason]
        return cell if cell.reason or not reasons else dataclasses.replace(cell, reason=reasons[0])


def measured(results: Results, measurement: Measurement[Found]) -> Measured[Found]:
    """Read what the finished runs have in their folders, and measure those that have nothing."""
    found: dict[Path, Found] = {}
    outcomes: list[Outcome] = []
    for outcome in results.outcomes:
        try:
            if outcome.state == "done":
                found[outcome.path] = _find(outcome, measurement)
            outcomes.append(outcome)
        except MessiError as error:
            outcomes.append(dataclasses.replace(outcome, state="started", reason=str(error)))
    return Measured(outcomes, found)


def _find(outcome: Outcome, measurement: Measurement[Found]) -> Found:
    file = outcome.path / f"{measurement.name}.json"
    kept = _read(file)
    if kept.get("settings") != measurement.settings:
        model = RunDir(outcome.path).model
        if not model.exists():
            raise MessiError(
                f"{model.name} is missing in {outcome.path.name}, so {measurement.what} cannot be measured; "
                "copy it there, then make the report again."
            )
        found = vars(measurement.measure(*reopened(outcome)))
        values = {name: _plain(tensor) for name, tensor in found.items()}
        run = RunDir(outcome.path).identity()
        write_document(file, {"run": run, "settings": measurement.settings, "found": values}, indent=None)
        kept = _read(file)
    return measurement.kind(**{name: _tensor(values) for name, values in kept["found"].items()})


def _read(file: Path) -> dict[str, Any]:
    """Return what a file says of its run; nothing where it is missing, damaged or of another: it can be made again."""
    folder = RunDir(file.parent)
    try:
        kept = read_values(file, lambda _: folder.read_description().version) if file.is_file() else {}
    except ValueError:
        return {}
    return kept if kept.get("run") in (None, folder.identity()) else {}


def _plain(tensor: Tensor) -> Any:
    """Return nested lists with every digit; null for what is not finite, which JSON does not have."""
    array = tensor.numpy().astype(object)
    array[~tensor.isfinite().numpy()] = None
    return array.tolist()


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))
