"""Evaluate a trained model again, on the data of its run or on other data."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from messi.core.errors import MessiError, unknown_name
from messi.core.precision import StatedPrecision
from messi.core.records import EvaluationRecord, Role
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, tensors_checksum
from messi.core.text import as_spelled
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.feature_table import FeatureTable
from messi.data.examples import Examples
from messi.data.features import encoded
from messi.data.loader import Loader
from messi.data.sealed_data import SealedData
from messi.data.seen_examples import SEEN, recognise
from messi.data.splits import Split
from messi.engine.build import loader_of, pick_device, placed, split_of
from messi.engine.config import RunConfig
from messi.evaluation.measure import evaluation_records, predict_role
from messi.evaluation.model import Model, load, naming_versions

_HELD_OUT: tuple[Role, ...] = ("source_val", "unseen_val", "source_test", "target")


def evaluate_run(
    path: Path,
    *,
    data: DataConfig | None = None,
    device: str | None = None,
    precision: StatedPrecision | None = None,
    algorithm: Path | None = None,
) -> list[EvaluationRecord]:
    """Evaluate the selected model of a finished run on its validation and target data, or on all of ``data``.

    Data with the same content is recognised as the run's own data at any path. In other data, each example that
    the run has seen is evaluated in the role that it had in the run, and each new example as a target.
    ``algorithm`` is the file with the method if it is the user's own.
    """
    if data is None:
        return _measure(*reopen(path, device=device, precision=precision, algorithm=algorithm), _HELD_OUT)
    chosen = pick_device(device)
    model = load(path, device=chosen, precision=precision, algorithm=algorithm)
    folder = _finished_run(path)
    examples = _load_for(model, data, chosen)
    if examples.fingerprint == model.description.data:
        config = dataclasses.replace(_config(path, model, algorithm), data=data)
        return _measure(model, _loader_of_run(model, config, examples, chosen), _HELD_OUT)
    sealed = _opened(encoded(_fitted(model, examples), model.spec), _recognised(model, folder, examples))
    return _measure(model, Loader(data=sealed, spec=model.spec, device=chosen), ("train", *_HELD_OUT))


def _load_for(model: Model, data: DataConfig, device: torch.device) -> Examples:
    """Load examples for a model; of a table other than that of its run, only the columns that the model takes."""
    if not (isinstance(data, FeatureTable) and model.spec.columns):
        return load_placed(data, device)
    with contextlib.suppress(MessiError):  # about a column, perhaps, that the model does not take
        examples = data.load()
        if examples.fingerprint == model.description.data:
            return examples
    return data.load_like(model.spec.columns)


def load_placed(data: DataConfig, device: torch.device) -> Examples:
    """Load all examples, with their pixels in the memory nearest to the device that has room."""
    return placed(data.load(), device)


def reopen(
    path: Path,
    *,
    device: str | None = None,
    precision: StatedPrecision | None = None,
    algorithm: Path | None = None,
    data: DataConfig | None = None,
    load_data: Callable[[DataConfig, torch.device], Examples] = load_placed,
) -> tuple[Model, Loader]:
    """Return the selected model of a finished run and a loader of its data, with the target open.

    ``data`` is where the data are now, if they were moved.
    """
    chosen = pick_device(device)
    model = load(path, device=chosen, precision=precision, algorithm=algorithm)
    if _finished_run(path) is None:
        raise MessiError(
            f"{path} is a model outside of its run folder;", "name the data to evaluate it on with --data."
        )
    config = _config(path, model, algorithm)
    config = dataclasses.replace(config, data=data) if data else config
    place = getattr(config.data, "path", None)
    if place and not Path(place).exists():
        raise MessiError(
            f"{path} was trained on {place}, which does not exist; if the data was moved or renamed, name its new path "
            "with --data."
        )
    examples = load_data(config.data, chosen)
    if examples.fingerprint != model.description.data:
        raise MessiError(
            f"The data of {path} has changed since the run;",
            "name it with --data to evaluate the model on the changed data: examples that the run has seen are then "
            "listed in their original role.",
        )
    return model, _loader_of_run(model, config, examples, chosen)


def _config(path: Path, model: Model, algorithm: Path | None) -> RunConfig:
    """Return the config of the run that trained a model."""
    with naming_versions(path, model.description.version):
        return RunConfig.from_dict(model.description.config, files=() if algorithm is None else (algorithm,))


def _finished_run(path: Path) -> RunDir | None:
    """Return the run folder that contains a model, or None; raise for an unfinished run, whose target is sealed."""
    folder = RunDir(path if path.is_dir() else path.resolve().parent)
    if folder.state() == "new":
        return None
    folder.read_result()
    return folder


def _loader_of_run(model: Model, config: RunConfig, examples: Examples, device: torch.device) -> Loader:
    """Return a loader of the data of a run, with all roles."""
    config = config.resolved()
    sealed = _opened(encoded(examples, model.spec), split_of(config, examples))
    return loader_of(config, sealed, model.spec, device)


def _recognised(model: Model, folder: RunDir | None, examples: Examples) -> Split:
    """Return the roles of examples in data that may overlap with the data of the run."""
    expected, log = model.description.seen, logging.getLogger("messi")
    if folder is None or expected is None:
        reason = "is outside of its run folder" if folder is None else "was trained by an earlier version of messi"
        log.warning("The model may have been trained on some of these examples: it %s, so this is unknown.", reason)
        return recognise(examples, {})
    seen = read_tensors(folder.seen)[0] if folder.seen.exists() else {}
    if tensors_checksum(seen) != expected:
        raise MessiError(
            f"{folder.seen} is missing, damaged or of another run; delete it and {folder.result}, and repeat the "
            "command of the run: it writes both again without training."
        )
    split = recognise(examples, seen)
    counts = {role: sum(map(len, split.of(role).values())) for role in SEEN}
    if number := sum(counts.values()):
        parts = ", ".join(f"{count:,} as {role}" for role, count in counts.items() if count)
        log.warning("The run has seen %s of these %s examples: %s.", f"{number:,}", f"{len(examples):,}", parts)
    return split


def _fitted(model: Model, examples: Examples) -> Examples:
    """Return the examples with labels that index the model's classes; refuse inputs that it cannot process."""
    classes = [as_spelled(name, model.classes) for name in examples.classes]
    for name in classes:
        if name not in model.classes:
            raise unknown_name("class in the model", name, model.classes)
    wanted, given = model.spec.shape, examples.input_shape
    if len(given) != len(wanted) or (len(wanted) == 3 and given[0] != wanted[0]):
        raise MessiError(
            f"The model takes inputs of shape {wanted}, but those of the data have shape {given}; give data of the "
            "same kind as in training."
        )
    order = torch.tensor([model.classes.index(name) for name in classes])
    return dataclasses.replace(examples, labels=order[examples.labels], classes=model.classes)


def _opened(examples: Examples, split: Split) -> SealedData:
    """Return the examples in all roles, including the target."""
    sealed = SealedData(examples, split)
    sealed.open_target()
    return sealed


def _measure(model: Model, loader: Loader, roles: Sequence[Role]) -> list[EvaluationRecord]:
    step, data = model.description.step, loader.data
    return [
        record
        for role in roles
        for record in evaluation_records(
            predict_role(model.algorithm, loader, role),
            role=role,
            step=step,
            domain_names=data.domain_names,
            unbalanced=data.unbalanced,
        )
    ]
