"""``plan.json`` in the folder of a plan: its experiment and options."""

from pathlib import Path
from typing import Any

from messi.core.documents import read_values, write_document
from messi.core.errors import MessiError, writing
from messi.core.info import version
from messi.core.rundir import PLAN
from messi.experiments.common.base import Experiment

_FIRST_VERSION = "0.1.0"
"""Plans of this version do not state which version wrote them."""


def read_plan(folder: Path) -> Experiment:
    """Return the experiment of a plan."""
    values = _read(folder / PLAN)
    try:
        experiment: Experiment = Experiment.from_dict(values)
    except MessiError as error:
        raise MessiError(f"{folder / PLAN} describes a plan that this version does not know: {error}") from error
    return experiment


def write_plan(experiment: Experiment, folder: Path) -> None:
    """Write the experiment of a plan into its folder, which is created if necessary."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_document(folder / PLAN, {**experiment.to_dict(), "version": version()})


def refuse_other_plan(experiment: Experiment, folder: Path) -> None:
    """Raise if a folder belongs to another experiment; the same experiment with other options may share its runs."""
    if (folder / PLAN).exists() and (other := _read(folder / PLAN)["name"]) != experiment.name:
        raise MessiError(
            f"{folder} contains the plan of '{other}', not of '{experiment.name}'; name another folder with --out."
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        values = read_values(file, _version)
        _require_name(values)
    except (OSError, ValueError) as error:
        raise MessiError(
            f"{file} is damaged: {error}. Delete it and repeat the 'messi reproduce' command that made it."
        ) from error
    values.pop("version", None)
    return values


def _version(values: dict[str, Any]) -> object:
    """Return the version that wrote a plan which has no checksum."""
    _require_name(values)
    return values.get("version", _FIRST_VERSION)


def _require_name(values: dict[str, Any]) -> None:
    if not isinstance(values.get("name"), str):
        raise ValueError("it must name an experiment")
