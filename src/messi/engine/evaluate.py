"""Measuring a trained model again, on the data of its run or on other data."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch

from messi.core.errors import MessiError, unknown_name
from messi.core.records import EvaluationRecord, Role
from messi.core.rundir import RunDir
from messi.data.datasets._base import DataConfig
from messi.data.examples import Examples
from messi.data.loader import Loader
from messi.data.splits import Split
from messi.data.vault import Vault
from messi.engine.config import RunConfig
from messi.engine.prepare import loader_of, pick_device, placed, split_of
from messi.evaluation.measure import evaluation_records, predict_role
from messi.evaluation.model import Model, load


def evaluate_run(path: Path, *, data: DataConfig | None = None, device: str | None = None) -> list[EvaluationRecord]:
    """Measure the selected model of a finished run on its validation and target data, or on all of ``data``."""
    if data is None:
        return _measure(*reopen(path, device=device))
    chosen = pick_device(device)
    model, examples = load(path, device=chosen), load_placed(data, chosen)
    domains = range(len(examples.domain_names))
    whole = Split(train={}, source_val={}, target={d: (examples.domains == d).nonzero().squeeze(1) for d in domains})
    vault = _opened(_fitted(model, examples), whole)
    return _measure(model, Loader(vault=vault, spec=model.spec, device=chosen))


def load_placed(data: DataConfig, device: torch.device) -> Examples:
    """Return all examples, their pixels as near to the device as they fit."""
    return placed(data.load(), device)


def reopen(
    path: Path,
    *,
    device: str | None = None,
    load_data: Callable[[DataConfig, torch.device], Examples] = load_placed,
) -> tuple[Model, Loader]:
    """Return the selected model of a finished run and the data of the run; training is over, so the target is open."""
    chosen = pick_device(device)
    model = load(path, device=chosen)
    RunDir(path).read_result()
    config = RunConfig.from_dict(model.description.config).resolved()
    place = getattr(config.data, "path", None)
    if place and not Path(place).exists():
        raise MessiError(
            f"{path} was trained on {place}, which is not there; go to the folder that it was trained from, "
            "bring the data back, or name it with messi evaluate --data."
        )
    examples = load_data(config.data, chosen)
    if examples.fingerprint != model.description.data:
        raise MessiError(
            f"The data of {path} has changed since; measure on all of it with messi evaluate --data, "
            "or run again in another folder with --out."
        )
    return model, loader_of(config, _opened(examples, split_of(config, examples)), model.spec, chosen)


def _fitted(model: Model, examples: Examples) -> Examples:
    """Return examples that the model can take, with labels that count its classes."""
    for name in examples.classes:
        if name not in model.classes:
            raise unknown_name("class in the model", name, model.classes)
    if len(examples.input_shape) != len(model.spec.shape) or examples.input_shape[0] != model.spec.shape[0]:
        raise MessiError(f"The model takes inputs like {model.spec.shape}, but the data has {examples.input_shape}.")
    order = torch.tensor([model.classes.index(name) for name in examples.classes])
    return dataclasses.replace(examples, labels=order[examples.labels], classes=model.classes)


def _opened(examples: Examples, split: Split) -> Vault:
    """Return the examples in all roles, the target included."""
    vault = Vault(examples, split)
    vault.open_target()
    return vault


def _measure(model: Model, loader: Loader) -> list[EvaluationRecord]:
    step, names = model.description.step, loader.vault.domain_names
    roles: tuple[Role, ...] = ("source_val", "unseen_val", "source_test", "target")
    return [
        record
        for role in roles
        for record in evaluation_records(
            predict_role(model.algorithm, loader, role), role=role, step=step, domain_names=names
        )
    ]
