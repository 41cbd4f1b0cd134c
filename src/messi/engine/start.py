"""The model that a run starts from instead of newly initialised weights (``--start``)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.core.batch import InputSpec
from messi.core.errors import MessiError
from messi.core.run_documents import RunDescription
from messi.core.rundir import RunDir
from messi.core.tensorfile import tensors_checksum
from messi.engine.config import RunConfig
from messi.evaluation.model import read_model, read_model_file


@dataclass(frozen=True)
class Start:
    """The model of a finished run, with everything that its method remembers."""

    path: Path
    weights: dict[str, Tensor]
    config: Mapping[str, Any]
    """The config of the run, as its description states it."""

    @property
    def checksum(self) -> str:
        """Identifies the weights, wherever they are stored."""
        return tensors_checksum(self.weights)

    def load_into(self, algorithm: Algorithm, config: RunConfig) -> None:
        """Copy the weights into the method of a run; raise an error that says why if one does not fit."""
        if difference := first_difference(algorithm.state_dict(), self.weights):
            advice = "Name a run with the same network and classes with --start"
            for option, ours, theirs in (
                ("algorithm", config.algorithm.name, self.config["algorithm"]["name"]),
                ("backbone", config.encoder.backbone, self.config["encoder"]["backbone"]),
            ):
                if ours != theirs:
                    difference = f"its {option} is {theirs} instead of {ours}"
                    advice += f", or add --{option} {theirs}"
                    break
            raise MessiError(f"The run cannot start from {self.path}: {difference}. {advice}.")
        algorithm.load_state_dict(self.weights)


def read_start(start: str, folder: RunDir, run: RunDescription, spec: InputSpec) -> Start:
    """Read the model that a run in ``folder`` starts from; a model that was trained on the run's target is refused.

    ``spec`` is the format of the run's inputs.
    """
    given, beside = Path(start), folder.path.parent / start
    path = given if given.exists() or not beside.exists() else beside
    if path.is_dir():
        RunDir(path).read_result()  # the model of an unfinished run still changes
        weights, model = read_model(RunDir(path))
    else:
        weights, model = read_model_file(path)
    if model.classes != run.classes:
        raise MessiError(f"The run cannot start from {path}: its classes are not those of the data, in the same order.")
    if _features(model.spec) != _features(spec):
        raise MessiError(
            f"The run cannot start from {path}: its features are not those of the data, in the same order."
        )
    if len(spec.shape) == 1 and (model.spec.mean, model.spec.std) != (spec.mean, spec.std):
        logging.getLogger("messi").warning(
            "The features of %s were scaled with other statistics than those of this run; training adapts to these.",
            path,
        )
    if model.data == run.data:
        if leaked := sorted(set(model.sources) & set(run.target)):
            raise MessiError(
                f"The run cannot start from {path}, which was trained on the target domain '{leaked[0]}'; name a run "
                "that holds out the same target with --start."
            )
        if model.seen != run.seen:
            logging.getLogger("messi").warning(
                "%s may have been trained on validation examples of this run, because its split differs; give both "
                "runs the same --split-seed.",
                path,
            )
    return Start(path, weights, model.config)


def _features(spec: InputSpec) -> list[object]:
    """Return what every feature means, without its statistics; nothing for images and for numbers without a name."""
    return [(column.name, column.categories, column.indicator) for column in spec.columns]


def first_difference(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    """Describe the first tensor that is missing, unknown or has another shape; empty if there is none."""
    for name, tensor in wanted.items():
        if name not in given:
            return f"it has no '{name}'"
        if given[name].shape != tensor.shape:
            return f"'{name}' has the shape {list(given[name].shape)} instead of {list(tensor.shape)}"
    unknown = next((name for name in given if name not in wanted), None)
    return f"it has '{unknown}', which this network does not have" if unknown else ""
