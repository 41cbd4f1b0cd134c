"""Find the folder of a run even if its data has been moved, so that the run is resumed instead of started again."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.data.examples import Examples
from messi.engine.config import RunConfig


def find_run(config: RunConfig, out: str | Path | None, load: Callable[[], Examples]) -> tuple[RunDir, RunConfig]:
    """Return the folder of a run and the config that it was started with, which may have another data path.

    Args:
        config: a resolved config.
        out: the folder; by default the one in ``runs/`` that is named by the config. If that is new, a folder of the
            same run on the same data at another path.
        load: returns the examples.

    """
    folder = RunDir(Path(out) if out else Path("runs") / config.folder_name())
    if folder.state() != "new":
        return folder, _started_config(config, folder) or config
    for other, started in () if out else _runs_next_to(folder, config):
        if other.read_description().data == load().fingerprint:
            logging.getLogger("messi").warning(
                "Using the run %s, which has the same settings and the same data at another path.", other.path
            )
            return other, started
    return folder, config


def _runs_next_to(folder: RunDir, config: RunConfig) -> list[tuple[RunDir, RunConfig]]:
    """Return the runs next to a folder that differ only in the path of the data, and the config of each."""
    parent, prefix = folder.path.parent, folder.path.name.rpartition("_")[0]
    found = []
    for place in sorted(parent.iterdir()) if parent.is_dir() else ():
        other = RunDir(place)
        if place.name.rpartition("_")[0] == prefix and other.state() != "new":
            with contextlib.suppress(MessiError):  # a damaged run must not prevent another one
                started = _started_config(config, other)
                if started and other.read_description().version == version():
                    found.append((other, started))
    return found


def _started_config(config: RunConfig, folder: RunDir) -> RunConfig | None:
    """Return the config of a folder's run if it differs from the given one only in the path of the data."""
    started, ours = folder.read_description().config, config.to_dict()
    places = {name: started["data"].get(name) for name in config.data.location_fields if name in ours["data"]}
    if {**ours, "data": {**ours["data"], **places}} != started:
        return None
    return dataclasses.replace(config, data=dataclasses.replace(config.data, **places))
