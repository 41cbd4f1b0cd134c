"""A run is a folder. Its state is what lies on disk, so it survives any crash."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from messi.core.errors import MessiError
from messi.core.files import leftovers, write_text, writing
from messi.core.records import Record, read_records

State = Literal["new", "started", "done"]
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
    def report(self) -> Path:
        """``report.html``: the page to look at."""
        return self.path / "report.html"

    def state(self) -> State:
        """Return how far this run is."""
        if self.result.exists():
            return "done"
        return "started" if self.description.exists() else "new"

    def read_description(self) -> dict[str, Any]:
        """Return what ``run.json`` says."""
        return self._read_json(self.description)

    def read_result(self) -> dict[str, Any]:
        """Return what ``result.json`` says."""
        return self._read_json(self.result)

    def read_timing(self) -> dict[str, Any]:
        """Return what ``timing.json`` says."""
        return self._read_json(self.timing)

    def read_diagnostics(self) -> dict[str, Any]:
        """Return what ``diagnostics.json`` says."""
        return self._read_json(self.diagnostics)

    def read_records(self) -> list[Record]:
        """Return everything measured so far."""
        return read_records(self.records)

    def find_model(self) -> Path:
        """Return the file of the selected model, or raise what the folder is instead."""
        if not self.model.is_file():
            raise self._missing(self.model.name, "Run the command that made it again in another folder.")
        return self.model

    def is_finished(self, config: dict[str, Any], version: str) -> bool:
        """Tell whether this very run was done before."""
        if self.state() != "done":
            return False
        described = self.read_description()
        return bool(described["config"] == config and described["version"] == version)

    def begin(self, description: dict[str, Any]) -> None:
        """Make the folder and describe the run, or check that the folder is of this very run."""
        if self.state() == "new":
            ours = {self.path / "lock", *leftovers(self.description)}
            if not ours.issuperset(self.path.iterdir()):
                raise MessiError(f"{self.path} has files but is no run folder; choose a new folder with --out.")
            write_text(self.description, json.dumps(description, indent=2) + "\n")
            return
        before = self.read_description()
        for key in ("config", "version"):
            if before[key] != description[key]:
                changed = _difference(before[key], description[key])
                raise MessiError(
                    f"{self.path} holds a run with another {key}: {changed}. Choose another folder with --out."
                )
        self.require_data(description["data"])

    def require_data(self, fingerprint: str) -> None:
        """Refuse to go on with this run, or to give out its result, as that of data that has changed since."""
        if self.read_description()["data"] != fingerprint:
            raise MessiError(
                f"The data of the run {self.path} has changed since; train anew in another folder with --out, or "
                "bring the data back."
            )

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

    def _read_json(self, path: Path) -> dict[str, Any]:
        # Without its result a run is finished anew, with all that is measured at its end, but not trained.
        first = self.path if path == self.description else self.result
        remedy = f"Delete {first} and run the command that made it again."
        if path == self.diagnostics:
            remedy += " Or take it away to get a report without it."
        if not path.is_file():
            raise self._missing(path.name, remedy)
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise MessiError(f"{path} is damaged: {error}. {remedy}") from error
        if not isinstance(values, dict):
            raise MessiError(f"{path} is damaged: it must hold one JSON object. {remedy}")
        return values

    def _missing(self, name: str, remedy: str) -> MessiError:
        """Say what the folder is instead of that of a finished run."""
        if not self.path.is_dir():
            return MessiError(f"There is no folder {self.path}; name the folder of a run, which holds run.json.")
        state = self.state()
        if state == "new":
            return MessiError(f"{self.path} is no run folder: run.json is missing. {_advice(self.path)}")
        if state == "started":
            return MessiError(
                f"{self.path} is not a finished run: {name} is missing. The same command that began it continues it."
            )
        return MessiError(f"{self.path} is damaged: {name} is missing. {remedy}")


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
