"""Data that was moved or renamed is the same data: a run on it is resumed, not started again."""

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
    """Return the folder of a run and the config that it began with, which may name another place of the data.

    Args:
        config: a resolved config.
        out: the folder; by default the one under ``runs/`` that is named by the config, or if that is new, one of
            the same run on the same data in another place.
        load: gives the examples.

    """
    folder = RunDir(Path(out) if out else Path("runs") / config.folder_name())
    if folder.state() != "new":
        return folder, _begun(config, folder) or config
    for other, begun in () if out else _runs_beside(folder, config):
        if other.read_description().data == load().fingerprint:
            logging.getLogger("messi").warning(
                "Using the run %s, which has the same settings and the same data in another place.", other.path
            )
            return other, begun
    return folder, config


def _runs_beside(folder: RunDir, config: RunConfig) -> list[tuple[RunDir, RunConfig]]:
    """Return the runs beside a folder with the config that each began with, if only the place of the data differs."""
    parent, prefix = folder.path.parent, folder.path.name.rpartition("_")[0]
    found = []
    for place in sorted(parent.iterdir()) if parent.is_dir() else ():
        other = RunDir(place)
        if place.name.rpartition("_")[0] == prefix and other.state() != "new":
            with contextlib.suppress(MessiError):  # a damaged run must not stop another one
                begun = _begun(config, other)
                if begun and other.read_description().version == version():
                    found.append((other, begun))
    return found


def _begun(config: RunConfig, folder: RunDir) -> RunConfig | None:
    """Return the config of a folder's run if it differs from the given one only in where the data lies."""
    begun, ours = folder.read_description().config, config.to_dict()
    places = {name: begun["data"].get(name) for name in config.data.places if name in ours["data"]}
    if {**ours, "data": {**ours["data"], **places}} != begun:
        return None
    return dataclasses.replace(config, data=dataclasses.replace(config.data, **places))
