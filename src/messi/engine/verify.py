"""Whether the files of a run are as they were written: every byte that messi would read back."""

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
    """What was looked at, and what is wrong with it."""

    files: set[Path] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    """One sentence each."""

    def look(self, file: Path, read: Callable[[], object]) -> None:
        """Read a file; a sentence that says what is wrong with it is kept."""
        self.files.add(file)
        try:
            read()
        except MessiError as error:
            if str(error) not in self.problems:
                self.problems.append(str(error))


def verify_run(path: Path) -> Verified:
    """Read all files of a run and compare them with their checksums."""
    folder, found = RunDir(path), Verified()
    found.look(folder.description, folder.read_description)
    if found.problems:  # nothing else can be told to belong to it
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
            found.look(file, read)
    return found


def verify_model(path: Path) -> Verified:
    """Read a model file and compare it with its checksum."""
    found = Verified()
    found.look(path, lambda: read_tensors(path))
    return found


def _verify_result(folder: RunDir, found: Verified) -> None:
    found.look(folder.result, folder.read_result)
    if found.problems:
        return
    for file in (folder.path / name for name in folder.read_result().files):
        found.look(file, functools.partial(folder.require_whole, file))
    found.look(folder.records, folder.read_records)
    if os.path.lexists(folder.diagnostics):
        found.look(folder.diagnostics, folder.read_diagnostics)


def _verify_checkpoint(folder: RunDir) -> None:
    """Read the state of training and as much of the records as it counts on."""
    description = read_checkpoint(folder.last, run=folder.identity())[1]
    training = folder.read_description().config["training"]
    if training.get("averaging") == "none" and description.step >= training.get("evaluate_every", math.inf):
        folder.find_model()  # it was selected by then
    read_beginning(folder.records, size=description.records_size, expected=description.records_checksum)
