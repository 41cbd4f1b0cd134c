"""A run is a folder. Its state is what lies on disk, so it survives any crash.

Every document has a checksum of its own, and ``result.json``, which is written last, has those of all other files: so
a file that is damaged, or that belongs to another run, is refused when it is read.
"""

import dataclasses
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from messi.core.checksum import file_checksum, parse_values, values_checksum
from messi.core.documents import parse_document, read_values, write_document
from messi.core.errors import MessiError
from messi.core.files import leftovers, writing
from messi.core.records import Record, read_records
from messi.core.regular import read_regular
from messi.core.run_documents import Diagnostics, Result, RunDescription, Timing

State = Literal["new", "started", "done"]
PLAN = "plan.json"
"""In the folder of a plan: its experiment and options."""
_Document = TypeVar("_Document")
_NAMED = 10
"""Runs that a sentence names."""


@dataclass(frozen=True)
class RunDir:
    """The files of one run."""

    path: Path

    @property
    def description(self) -> Path:
        """``run.json``: config, data, classes, versions; written once, before anything else."""
        return self.path / "run.json"

    @property
    def records(self) -> Path:
        """``records.jsonl``: everything measured."""
        return self.path / "records.jsonl"

    @property
    def seen(self) -> Path:
        """``seen.safetensors``: digests of all examples but the target's, by which they are recognised elsewhere."""
        return self.path / "seen.safetensors"

    @property
    def last(self) -> Path:
        """``last.safetensors``: the state that training continues from."""
        return self.path / "last.safetensors"

    @property
    def model(self) -> Path:
        """``model.safetensors``: the selected model with its classes and preprocessing."""
        return self.path / "model.safetensors"

    @property
    def result(self) -> Path:
        """``result.json``: written last; its presence means that the run is finished."""
        return self.path / "result.json"

    @property
    def diagnostics(self) -> Path:
        """``diagnostics.json``: what the selected model learned."""
        return self.path / "diagnostics.json"

    @property
    def timing(self) -> Path:
        """``timing.json``: how long training and prediction took, which differs where the result must not."""
        return self.path / "timing.json"

    @property
    def examples(self) -> Path:
        """``examples/``: pictures of some examples."""
        return self.path / "examples"

    @property
    def report(self) -> Path:
        """``report.html``: the page to look at."""
        return self.path / "report.html"

    def state(self) -> State:
        """Return how far this run is."""
        if self.result.exists():
            return "done"
        return "started" if self.description.exists() else "new"

    def read_description(self) -> RunDescription:
        """Return what ``run.json`` says."""
        return self._read(self.description, RunDescription)

    def read_result(self) -> Result:
        """Return what ``result.json`` says."""
        return self._read(self.result, Result)

    def read_timing(self) -> Timing:
        """Return what ``timing.json`` says."""
        timing = self._read(self.timing, Timing)
        if timing.run not in (None, self.identity()):
            raise MessiError(f"{self.timing} belongs to another run; restore the right one, or remove it.")
        return timing

    def read_diagnostics(self) -> Diagnostics:
        """Return what ``diagnostics.json`` says."""
        return self._read(self.diagnostics, Diagnostics)

    def read_records(self) -> list[Record]:
        """Return everything measured so far."""
        if not self.records.exists():
            return []
        self.require_whole(self.records)
        return read_records(self.records)

    def identity(self) -> str:
        """Return what tells this run from all others: the checksum of ``run.json``."""
        return values_checksum(self._values(self.description))

    def find_model(self) -> Path:
        """Return the file of the selected model, or raise what the folder is instead."""
        if not self.model.exists():
            raise self._missing(self.model)
        return self.model

    def is_finished(self, config: dict[str, Any], version: str) -> bool:
        """Tell whether this very run was done before."""
        if self.state() != "done":
            return False
        described = self.read_description()
        return described.config == config and described.version == version

    def begin(self, description: RunDescription) -> None:
        """Make the folder and describe the run, or check that the folder is of this very run."""
        if self.state() == "new":
            ours = {self.path / "lock", *leftovers(self.description)}
            if not ours.issuperset(self.path.iterdir()):
                raise MessiError(f"{self.path} has files but is no run folder; choose a new folder with --out.")
            write_document(self.description, description)
            return
        before = self.read_description()
        for key in ("config", "version"):
            if getattr(before, key) != getattr(description, key):
                changed = _difference(getattr(before, key), getattr(description, key))
                raise MessiError(
                    f"{self.path} holds a run with another {key}: {changed}. Choose another folder with --out."
                )
        self.require_data(description.data)

    def finish(self, result: Result, records: str) -> None:
        """Write the result, and with it the checksums of all that belongs to it; ``records`` is that of the records.

        How long it took does not: a run that was resumed ends with the same result, to the bit, and another timing.
        """
        files = {file.relative_to(self.path).as_posix(): file_checksum(file) for file in self._results()}
        write_document(self.result, dataclasses.replace(result, files=files | {self.records.name: records}))

    def _results(self) -> list[Path]:
        """Return the files that belong to the result, the records aside."""
        single = (self.description, self.seen, self.model, self.diagnostics)
        return [*(file for file in single if file.exists()), *sorted(self.examples.glob("*"))]

    def require_data(self, fingerprint: str) -> None:
        """Refuse to go on with this run, or to give out its result, as that of data that has changed since."""
        if self.read_description().data != fingerprint:
            raise MessiError(
                f"The data of the run {self.path} has changed since; train anew in another folder with --out, or "
                "restore the data."
            )

    def require_whole(self, path: Path) -> None:
        """Refuse a file that is not the one that the run ended with; what an unfinished run has may be any."""
        if not path.is_relative_to(self.path) or ".." in path.relative_to(self.path).parts:
            raise MessiError(f"{path} lies outside of the run {self.path} that names it; do not trust that run.")
        if path in (self.result, self.timing) or self.state() != "done":
            return
        files = self.read_result().files
        name = path.relative_to(self.path).as_posix()
        if name in files:
            if file_checksum(path) != files[name]:
                raise MessiError(
                    f"{path} is damaged, or of another run: its checksum is not the one that result.json has. "
                    f"{self._remedy(path)}"
                )
        elif files:
            raise MessiError(f"{path} does not belong to the run: result.json does not know it. Remove it.")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of this folder for the duration of the block."""
        fresh = not self.path.exists()
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise MessiError(f"Another process is working on {self.path}; wait for it or stop it.") from error
            try:
                yield
            finally:
                self._leave_as_found(fresh=fresh)
        finally:
            os.close(handle)

    def _leave_as_found(self, *, fresh: bool) -> None:
        """Where no run began, take away what locking the folder made."""
        if self.state() == "new":
            (self.path / "lock").unlink()
            if fresh:
                self.path.rmdir()

    def _read(self, path: Path, kind: type[_Document]) -> _Document:
        values = self._values(path)
        self.require_whole(path)
        try:
            return parse_document(kind, values)
        except MessiError as error:
            raise MessiError(f"{path} is not one that this version can read: {error} {self._remedy(path)}") from error

    def _values(self, path: Path) -> dict[str, Any]:
        """Return the values of a document that fit its checksum."""
        if not path.exists():
            raise self._missing(path)
        try:
            return read_values(path, self._version)
        except OSError as error:
            raise MessiError(f"{path} cannot be read: {error.strerror}. {self._remedy(path)}") from error
        except ValueError as error:
            raise self._damaged(path, error) from error

    def _version(self, values: dict[str, Any]) -> object:
        """Return the version that wrote a document, which ``run.json`` says of all of them."""
        return values.get("version") or parse_values(read_regular(self.description)).get("version")

    def _damaged(self, path: Path, error: Exception) -> MessiError:
        return MessiError(f"{path} is damaged: {error}. {self._remedy(path)}")

    def _remedy(self, path: Path) -> str:
        """Say how to get a file again."""
        # Without its result a run is finished anew, with all that is measured at its end, but not trained.
        first = self.path if path in (self.description, self.records, self.model) else self.result
        remedy = f"Restore it from a copy, or delete {first} and repeat the command that made it."
        return f"{remedy} Or remove it to get a report without it." if path == self.diagnostics else remedy

    def _missing(self, path: Path) -> MessiError:
        """Say what the folder is instead of that of a finished run."""
        if not self.path.is_dir():
            return MessiError(f"There is no folder {self.path}; name the folder of a run, which holds run.json.")
        state = self.state()
        if state == "new":
            return MessiError(f"{self.path} is no run folder: run.json is missing. {_advice(self.path)}")
        if state == "started":
            return MessiError(
                f"{self.path} is not a finished run: {path.name} is missing. "
                "The same command that began it continues it."
            )
        return MessiError(f"{self.path} is damaged: {path.name} is missing. {self._remedy(path)}")


def runs_inside(folder: Path) -> list[Path]:
    """Return the run folders that lie in a folder, as those of several targets do."""
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return [place for place in places if RunDir(place).description.is_file()]


def _advice(folder: Path) -> str:
    """Say which folder to name instead of one that is no run."""
    names = [run.name for run in runs_inside(folder)]
    if not names:
        return "Name the folder of a run."
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"It holds {len(names)} runs: {', '.join(names[:_NAMED])}{more}; name one of them."


def folder_name(text: str) -> str:
    """Return a text, such as the name of a domain, as that of a folder which lies in the one that it is put into."""
    name = text.replace("/", "-")
    return name.replace(".", "-") if name in (".", "..") else name


def _difference(before: Any, now: Any, name: str = "") -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        parts = (
            _difference(before.get(key), now.get(key), f"{name}.{key}".lstrip("."))
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key)
        )
        return "; ".join(parts)
    return f"{name or 'it'} was {before!r} and is now {now!r}"
