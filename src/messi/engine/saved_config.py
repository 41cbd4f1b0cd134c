"""The config of an earlier run, read from its ``run.json``."""

from pathlib import Path

from messi.algorithms.common.base import ALGORITHMS
from messi.core.errors import MessiError
from messi.core.registry import short_name
from messi.core.rundir import RunDir
from messi.engine.config import RunConfig


def read_config(path: Path, *, algorithm: str | None = None) -> RunConfig:
    """Return the config of a run, given its folder or its ``run.json``.

    ``algorithm`` replaces the method if it names another one. A method in a user's own file is run only if
    ``algorithm`` names that file: whoever wrote ``run.json`` must not decide what is run.
    """
    folder = RunDir(path.parent if path.name == "run.json" else path)
    description = folder.read_description()
    if description.average:
        raise MessiError(
            f"{folder.path} is the average of {len(description.average.runs)} runs, which cannot be trained; name one "
            "of them with --config, or repeat 'messi average'."
        )
    values = dict(description.config)
    if algorithm and not _same_method(algorithm, values["algorithm"]["name"]):
        values["algorithm"] = ALGORITHMS.config(algorithm)().to_dict()
    try:
        return RunConfig.from_dict(values, files=() if algorithm is None else (algorithm,))
    except MessiError as error:
        raise MessiError(f"The configuration in {folder.description} cannot be used. {error}") from error


def _same_method(first: str, second: str) -> bool:
    own_files = first.endswith(".py"), second.endswith(".py")
    return short_name(first) == short_name(second) and own_files[0] == own_files[1]
