"""Measures finished models beyond what a run records: loads each model once and stores the numbers in its run folder.

Reports read these files only, so a report can be repeated, with other options, where the models are not available.
"""

import dataclasses
import functools
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
from messi.engine.evaluate import load_placed, reopen
from messi.studies.common.results import Results
from messi.sweeps.plan import Outcome

Found = TypeVar("Found")
"""A dataclass whose fields are tensors."""

_load_once = functools.lru_cache(maxsize=1)(load_placed)
"""Successive runs of a plan usually share their data."""


@dataclass(frozen=True)
class Measurement(Generic[Found]):
    """A measurement on finished models that runs do not record themselves."""

    name: str
    """Of the file in the run folder, without its ending."""
    what: str
    """For messages."""
    settings: Mapping[str, float]
    """What the numbers depend on; a file with other settings is measured again."""
    measure: Callable[[Algorithm, Loader], Found]
    """Gets the selected model and its data, on a GPU if there is one; the target may be read."""
    kind: Callable[..., Found]
    """Builds the result from stored tensors."""

    def read(self, folder: Path) -> Found | None:
        """Return what was measured for a run; None if the file is missing, damaged or out of date."""
        run = RunDir(folder)
        try:
            values = read_values(self._file(folder), lambda _: run.read_description().version)
            kept = parse_document(_Stored, values)
            if kept.run not in (None, run.identity()) or kept.settings != self.settings:
                return None
            return self.kind(**{name: _tensor(numbers) for name, numbers in kept.found.items()})
        except (OSError, OverflowError, TypeError, ValueError, MessiError):
            return None

    def write(self, folder: Path) -> None:
        """Load the model of a run, measure it and store the numbers."""
        run = RunDir(folder)
        if not run.model.exists():
            raise MessiError(
                f"{run.model.name} is missing in {folder.name}, so {self.what} cannot be measured; "
                "copy it there, then repeat the report."
            )
        model, loader = reopen(folder, load_data=_load_once)
        found = {name: _plain(tensor) for name, tensor in vars(self.measure(model.algorithm, loader)).items()}
        stored = _Stored(run=run.identity(), settings=dict(self.settings), found=found)
        write_document(self._file(folder), stored, indent=None)

    def _file(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"


def measure(results: Results, measurement: Measurement[Any]) -> Results:
    """Measure every finished run that has no measurement; if that fails, the run is incomplete, with the reason."""
    return Results([_measured(outcome, measurement) for outcome in results.outcomes])


def read_measured(results: Results, measurement: Measurement[Found]) -> dict[Path, Found]:
    """Return what was measured, by run folder; runs that are not done or were not measured are missing."""
    done = [outcome.path for outcome in results.outcomes if outcome.state == "done"]
    return {path: found for path in done if (found := measurement.read(path)) is not None}


def _measured(outcome: Outcome, measurement: Measurement[Any]) -> Outcome:
    try:
        if outcome.state == "done" and measurement.read(outcome.path) is None:
            measurement.write(outcome.path)
    except MessiError as error:
        return dataclasses.replace(outcome, state="started", reason=str(error))
    return outcome


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """The content of the file."""

    run: str | None = None
    """The identity of the run; None in files of version 0.1."""
    settings: dict[str, float]
    found: dict[str, Any]


def _plain(tensor: Tensor) -> Any:
    """Return nested lists with every digit; null for values that are not finite, which JSON does not have."""
    array = tensor.numpy().astype(object)
    array[~tensor.isfinite().numpy()] = None
    return array.tolist()


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))
