"""``plan.json`` in the folder of a plan: its study and options."""

from pathlib import Path
from typing import Any

from messi.core.documents import read_values, write_document
from messi.core.errors import MessiError, writing
from messi.core.info import version
from messi.core.rundir import PLAN
from messi.studies.common.base import EXPERIMENTS, STUDIES, Study

_FIRST_VERSION = "0.1.0"
"""Plans of this version do not state which version wrote them."""


def read_plan(folder: Path) -> Study:
    """Return the study of a plan."""
    values = _read(folder / PLAN)
    registry = STUDIES if values["name"] in STUDIES.names() else EXPERIMENTS
    try:
        kind: type[Study] = registry.config(registry.permitted(values["name"], None, ()))
        return kind.from_dict(values)
    except MessiError as error:
        raise MessiError(f"{folder / PLAN} describes a plan that this version does not know: {error}") from error


def write_plan(study: Study, folder: Path) -> None:
    """Write the study of a plan into its folder, which is created if necessary."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_document(folder / PLAN, {**study.to_dict(), "version": version()})


def refuse_other_plan(study: Study, folder: Path) -> None:
    """Raise if a folder belongs to another study; the same study with other options may share its runs."""
    if (folder / PLAN).exists() and (other := _read(folder / PLAN)["name"]) != study.name:
        raise MessiError(
            f"{folder} contains the plan of '{other}', not of '{study.name}'; name another folder with --out."
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        values = read_values(file, _version)
        _require_name(values)
    except (OSError, ValueError) as error:
        raise MessiError(f"{file} is damaged: {error}. Delete it and repeat the command that made it.") from error
    values.pop("version", None)
    return values


def _version(values: dict[str, Any]) -> object:
    """Return the version that wrote a plan which has no checksum."""
    _require_name(values)
    return values.get("version", _FIRST_VERSION)


def _require_name(values: dict[str, Any]) -> None:
    if not isinstance(values.get("name"), str):
        raise ValueError("it must name a study")
