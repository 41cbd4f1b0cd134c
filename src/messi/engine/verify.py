"""Check that the files of a run are undamaged: every byte that messi reads back."""

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from messi.core.errors import MessiError
from messi.core.records import read_beginning
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.engine.checkpoint import read_checkpoint
from messi.evaluation.model import read_model


@dataclass
class Verified:
    """The files that were checked, and their problems."""

    files: set[Path] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    """One sentence each."""

    def check(self, file: Path, read: Callable[[], object]) -> None:
        """Read a file and keep the message of an error."""
        self.files.add(file)
        try:
            read()
        except MessiError as error:
            if str(error) not in self.problems:
                self.problems.append(str(error))


def verify_run(path: Path) -> Verified:
    """Read all files of a run and verify their checksums."""
    folder, found = RunDir(path), Verified()
    found.check(folder.description, folder.read_description)
    if found.problems:  # without run.json, no other file can be matched to the run
        return found
    if folder.state() == "done":
        _verify_result(folder, found)
    optional = {
        folder.model: lambda: read_model(folder),
        folder.last: lambda: _verify_checkpoint(folder),
        folder.seen: lambda: read_tensors(folder.seen),
        folder.timing: folder.read_timing,
    }
    for file, read in optional.items():
        if os.path.lexists(file):
            found.check(file, read)
    return found


def verify_model(path: Path) -> Verified:
    """Read a model file and verify its checksum."""
    found = Verified()
    found.check(path, lambda: read_tensors(path))
    return found


def _verify_result(folder: RunDir, found: Verified) -> None:
    found.check(folder.result, folder.read_result)
    if found.problems:
        return
    for file in (folder.path / name for name in folder.read_result().files):
        found.check(file, functools.partial(folder.require_whole, file))
    found.check(folder.records, folder.read_records)
    if os.path.lexists(folder.diagnostics):
        found.check(folder.diagnostics, folder.read_diagnostics)


def _verify_checkpoint(folder: RunDir) -> None:
    """Read the checkpoint and the records up to it."""
    description = read_checkpoint(folder.last, run=folder.identity())[1]
    training = folder.read_description().config["training"]
    if training.get("averaging") == "none" and description.step >= training.get("evaluate_every", math.inf):
        folder.find_model()  # an evaluation has selected one
    read_beginning(folder.records, size=description.records_size, expected=description.records_checksum)
