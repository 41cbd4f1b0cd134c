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

from messi.algorithms.common.base import Algorithm
from messi.core.documents import parse_document, read_values, write_document
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.data.loader import Loader
from messi.experiments.common.reopened import reopened
from messi.experiments.common.results import Results
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


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """What a file in the folder of a run holds."""

    run: str | None = None
    """The identity of the run; None in files of version 0.1."""
    settings: dict[str, float]
    found: dict[str, Any]


def _find(outcome: Outcome, measurement: Measurement[Found]) -> Found:
    file, run = outcome.path / f"{measurement.name}.json", RunDir(outcome.path)
    if (kept := _read(file, measurement)) is not None:
        return kept
    if not run.model.exists():
        raise MessiError(
            f"{run.model.name} is missing in {outcome.path.name}, so {measurement.what} cannot be measured; "
            "copy it there, then make the report again."
        )
    found = {name: _plain(tensor) for name, tensor in vars(measurement.measure(*reopened(outcome))).items()}
    write_document(file, _Kept(run=run.identity(), settings=dict(measurement.settings), found=found), indent=None)
    return _made(measurement, found)


def _read(file: Path, measurement: Measurement[Found]) -> Found | None:
    """Return what a file says of its run; None where it is missing, damaged or of another: it can be made again."""
    folder = RunDir(file.parent)
    try:
        values = read_values(file, lambda _: folder.read_description().version)
        kept = parse_document(_Kept, values)
        if kept.run not in (None, folder.identity()) or kept.settings != measurement.settings:
            return None
        return _made(measurement, kept.found)
    except (OSError, OverflowError, TypeError, ValueError, MessiError):
        return None


def _made(measurement: Measurement[Found], found: Mapping[str, Any]) -> Found:
    return measurement.kind(**{name: _tensor(values) for name, values in found.items()})


def _plain(tensor: Tensor) -> Any:
    """Return nested lists with every digit; null for what is not finite, which JSON does not have."""
    array = tensor.numpy().astype(object)
    array[~tensor.isfinite().numpy()] = None
    return array.tolist()


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))
