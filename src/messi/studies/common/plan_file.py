"""``plan.json`` in the folder of a plan: its study and options."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from messi.core.checksum import CHECKSUM_KEY, parse_values, values_checksum
from messi.core.documents import read_values, write_document
from messi.core.errors import MessiError, writing
from messi.core.files import read_regular
from messi.core.info import version
from messi.core.rundir import PLAN
from messi.studies.common.base import EXPERIMENTS, STUDIES, Study

StudyType = TypeVar("StudyType", bound=Study)
_FIRST_VERSION = "0.1.0"
"""Plans of this version do not state which version wrote them."""


def read_plan(folder: Path, files: Collection[str | Path] = ()) -> Study:
    """Return the study of a plan; ``files`` are the user's own files that it may name."""
    values = _read(folder / PLAN)
    registry = STUDIES if values["name"] in STUDIES.names() else EXPERIMENTS
    try:
        kind: type[Study] = registry.config(registry.permitted(values["name"], None, ()))
        return kind.from_dict(values, files=files)
    except MessiError as error:
        raise MessiError(f"{folder / PLAN} describes a plan that this version does not know: {error}") from error


def read_edited_plan(file: Path, kind: type[StudyType], files: Collection[str | Path] = ()) -> StudyType:
    """Return the study in a plan file that the user may have edited: then it must not have a checksum."""
    try:
        values = parse_values(read_regular(file))
        given = values.pop(CHECKSUM_KEY, None)
        if given not in (None, values_checksum(values)):
            raise ValueError('it was changed; to run it as it is, delete its line "checksum"')
    except (OSError, ValueError) as error:
        raise MessiError(f"{file} cannot be read as a plan: {error}.") from error
    values.pop("version", None)
    study = kind.from_dict(values, files=files)
    if not isinstance(study, kind):
        raise MessiError(f"{file} is the plan of '{values['name']}'; use the command that made it.")
    return study


def check_plan_file(folder: Path) -> None:
    """Raise if the file of a plan is damaged; the methods that it names are not loaded."""
    _read(folder / PLAN)


def write_plan(study: Study, folder: Path) -> None:
    """Write the study of a plan into its folder, which is created if necessary."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_document(folder / PLAN, {**study.to_dict(), "version": version()})


def refuse_other_plan(study: Study, folder: Path) -> None:
    """Raise if a folder belongs to another study; the same study with other options may share its runs.

    The file will be written anew, so a user may have edited it.
    """
    if (folder / PLAN).exists() and (other := _read(folder / PLAN, checked=False)["name"]) != study.name:
        raise MessiError(
            f"{folder} contains the plan of '{other}', not of '{study.name}'; name another folder with --out."
        )


def _read(file: Path, *, checked: bool = True) -> dict[str, Any]:
    try:
        values = read_values(file, _version) if checked else parse_values(read_regular(file))
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
