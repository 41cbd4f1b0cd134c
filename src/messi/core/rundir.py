"""A run is a folder. Its whole state is on disk, so it survives any crash.

Every document has a checksum, and ``result.json``, which is written last, has the checksums of all other files. A file
that is damaged or belongs to another run is therefore refused when it is read.
"""

import dataclasses
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from messi.core.checksum import CHECKSUM_KEY, checksum, file_checksum, parse_values, values_checksum
from messi.core.documents import checked_values, parse_document, write_document
from messi.core.errors import MessiError, writing
from messi.core.files import leftovers, read_regular
from messi.core.lock import locked
from messi.core.records import Record, read_records
from messi.core.run_documents import Diagnostics, Result, RunDescription, Timing

State = Literal["new", "started", "done"]
PLAN = "plan.json"
"""In the folder of a plan: its experiment and options."""
_SEPARATORS = str.maketrans(dict.fromkeys('/\\:*?"<>|' if os.name == "nt" else "/", "-"))
_Document = TypeVar("_Document")
_NAMED = 10
"""The number of runs that a message lists."""


@dataclass(frozen=True)
class RunDir:
    """The files of one run."""

    path: Path

    @property
    def description(self) -> Path:
        """``run.json``: config, data, classes and versions; written once, before anything else."""
        return self.path / "run.json"

    @property
    def records(self) -> Path:
        """``records.jsonl``: everything measured."""
        return self.path / "records.jsonl"

    @property
    def seen(self) -> Path:
        """``seen.safetensors``: digests of all examples except the target's, to recognise them in other data."""
        return self.path / "seen.safetensors"

    @property
    def last(self) -> Path:
        """``last.safetensors``: the checkpoint from which training resumes."""
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
        """``timing.json``: how long training and prediction took; unlike the result, it differs between repetitions."""
        return self.path / "timing.json"

    @property
    def examples(self) -> Path:
        """``examples/``: pictures of some examples."""
        return self.path / "examples"

    @property
    def report(self) -> Path:
        """``report.html``: the report for people."""
        return self.path / "report.html"

    @property
    def novelty(self) -> Path:
        """``novelty.safetensors``: examples that a service compares inputs with; written when the run is served."""
        return self.path / "novelty.safetensors"

    def state(self) -> State:
        """Return whether this run is new, started or done."""
        if self.result.exists():
            return "done"
        return "started" if self.description.exists() else "new"

    def read_description(self) -> RunDescription:
        """Read ``run.json``."""
        return self._read(self.description, RunDescription)

    def read_result(self) -> Result:
        """Read ``result.json``."""
        return self._read(self.result, Result)

    def read_timing(self) -> Timing:
        """Read ``timing.json``."""
        timing = self._read(self.timing, Timing)
        if timing.run not in (None, self.identity()):
            raise MessiError(f"{self.timing} belongs to another run; restore the right one, or remove it.")
        return timing

    def read_diagnostics(self, *, without: Collection[str] = ()) -> Diagnostics:
        """Read ``diagnostics.json``; parts that are not wanted save time."""
        values = self._values(self.diagnostics, self._listed())
        wanted = {key: value for key, value in values.items() if key not in without}
        return self._typed(self.diagnostics, Diagnostics, wanted)

    def read_records(self) -> list[Record]:
        """Return everything measured so far."""
        if not self.records.exists():
            return []
        self.require_whole(self.records)
        return read_records(self.records)

    def identity(self) -> str:
        """Return the identity of this run: the checksum of ``run.json``."""
        return values_checksum(self._values(self.description, {}))

    def find_model(self) -> Path:
        """Return the file of the selected model, or raise an error that states what is missing."""
        if not self.model.exists():
            raise self._missing(self.model)
        return self.model

    def is_finished(self, config: dict[str, Any], version: str, origin: tuple[str, ...] = ()) -> bool:
        """Return whether a run with the same config and version is done; ``origin`` is that of an average of runs."""
        return self.result_of(values_checksum(config), version, origin) is not None

    def result_of(self, config: str, version: str, origin: tuple[str, ...] = ()) -> Result | None:
        """Return the result if the run is done and has the config with this checksum, this version and this origin.

        A plan calls this for thousands of runs, so each file is read once and only what is compared is parsed.
        """
        if self.state() != "done":
            return None
        result = self.read_result()
        values = self._values(self.description, result.files)
        found = self._typed(self.description, RunDescription, values).origin if values.get("average") else ()
        same = (values_checksum(values.get("config", {})), values.get("version"), found) == (config, version, origin)
        return result if same else None

    def begin(self, description: RunDescription) -> None:
        """Describe a new run, or check that the folder belongs to this run."""
        if self.state() == "new":
            ours = {self.path / "lock", *leftovers(self.description)}
            if not ours.issuperset(self.path.iterdir()):
                raise MessiError(f"{self.path} contains files but is not a run folder; choose a new folder with --out.")
            write_document(self.description, description)
            return
        before = self.read_description()
        if before.origin != description.origin:
            kind = "the average of other runs" if before.origin else "a run that was trained, not an average"
            raise MessiError(f"{self.path} contains {kind}; choose another folder with --out.")
        for key in ("config", "version"):
            if getattr(before, key) != getattr(description, key):
                changed = _difference(getattr(before, key), getattr(description, key))
                raise MessiError(
                    f"{self.path} contains a run with another {key}: {changed}. Choose another folder with --out."
                )
        if before.precision != description.precision:
            raise MessiError(
                f"Another process began the run {self.path} in another precision; repeat the command to continue it."
            )
        self.require_data(description.data)
        if before.start != description.start:
            raise MessiError(
                f"The model that the run {self.path} started from has changed since then; restore it, or train again "
                "in another folder with --out."
            )

    def finish(self, result: Result, records: str) -> None:
        """Write the result with the checksums of all files that belong to it.

        ``records`` is the checksum of the records. The timing does not belong to it: a resumed run has the same
        result, bit for bit, but a different timing.
        """
        files = {file.relative_to(self.path).as_posix(): file_checksum(file) for file in self._results()}
        write_document(self.result, dataclasses.replace(result, files=files | {self.records.name: records}))

    def _results(self) -> list[Path]:
        """Return the files that belong to the result, except the records."""
        single = (self.description, self.seen, self.model, self.diagnostics)
        return [*(file for file in single if file.exists()), *sorted(self.examples.glob("*"))]

    def require_data(self, fingerprint: str) -> None:
        """Raise if the data has changed since the run, which must then neither be resumed nor reported."""
        if self.read_description().data != fingerprint:
            raise MessiError(
                f"The data has changed since the run {self.path}; train again in another folder with --out, or "
                "restore the data."
            )

    def require_whole(self, path: Path) -> None:
        """Raise unless a file has the checksum in ``result.json``; files of an unfinished run are not checked."""
        if path in (self.result, self.timing):
            return
        if not path.is_relative_to(self.path) or ".." in path.relative_to(self.path).parts:
            raise MessiError(f"{path} is outside the run {self.path} that names it; do not trust that run.")
        if files := self._listed():
            self._require_listed(path, file_checksum(path), files)

    def _listed(self) -> dict[str, str]:
        """Return the checksums in ``result.json``; none for an unfinished run, or one of version 0.1."""
        return self.read_result().files if self.state() == "done" else {}

    def _require_listed(self, path: Path, found: str, files: dict[str, str]) -> None:
        """Raise unless a file has the checksum that ``result.json`` lists."""
        name = path.relative_to(self.path).as_posix()
        if name not in files:
            raise MessiError(f"{path} does not belong to the run: result.json does not list it. Remove it.")
        if found != files[name]:
            raise MessiError(
                f"{path} is damaged or belongs to another run: its checksum differs from that in result.json. "
                f"{self._remedy(path)}"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of this folder during the block; remove folder and lock if no run began."""
        fresh = not self.path.exists()
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.path, self.path / "lock", remove=self._is_new):
                yield
        finally:
            if fresh and self._is_new():
                with suppress(OSError):  # another process has begun to use it
                    self.path.rmdir()

    def _is_new(self) -> bool:
        return self.state() == "new"

    def _read(self, path: Path, kind: type[_Document]) -> _Document:
        listed = {} if path in (self.result, self.timing) else self._listed()
        return self._typed(path, kind, self._values(path, listed))

    def _typed(self, path: Path, kind: type[_Document], values: dict[str, Any]) -> _Document:
        try:
            return parse_document(kind, values)
        except MessiError as error:
            raise MessiError(f"{path} cannot be read by this version: {error} {self._remedy(path)}") from error

    def _values(self, path: Path, listed: dict[str, str]) -> dict[str, Any]:
        """Return the values of a document after comparing it with its checksum and that in ``result.json``."""
        try:
            content = read_regular(path)
            found = checksum([content])
            if found == listed.get(path.name):  # so its own checksum is right, too
                return {key: value for key, value in parse_values(content).items() if key != CHECKSUM_KEY}
            values = checked_values(path, content, self._version)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._missing(path) from error
        except OSError as error:
            raise MessiError(f"{path} cannot be read: {error.strerror}. {self._remedy(path)}") from error
        except ValueError as error:
            raise self._damaged(path, error) from error
        if listed:
            self._require_listed(path, found, listed)
        return values

    def _version(self, values: dict[str, Any]) -> object:
        """Return the version of messi that wrote a document; ``run.json`` states it for all documents."""
        return values.get("version") or parse_values(read_regular(self.description)).get("version")

    def _damaged(self, path: Path, error: Exception) -> MessiError:
        return MessiError(f"{path} is damaged: {error}. {self._remedy(path)}")

    def _remedy(self, path: Path) -> str:
        """Return advice on how to restore a file."""
        # Without result.json, repeating the command measures everything again, but does not train.
        first = self.path if path in (self.description, self.records, self.model) else self.result
        remedy = f"Restore it from a copy, or delete {first} and repeat the command that created it."
        return f"{remedy} Or remove it to get a report without it." if path == self.diagnostics else remedy

    def _missing(self, path: Path) -> MessiError:
        """Describe why a file of a finished run is missing."""
        if not self.path.is_dir():
            return MessiError(f"There is no folder {self.path}; name the folder of a run, which contains run.json.")
        state = self.state()
        if state == "new":
            return MessiError(f"{self.path} is not a run folder: run.json is missing. {_advice(self.path)}")
        if state == "started":
            return MessiError(
                f"{self.path} is not a finished run: {path.name} is missing. "
                "Repeat the command that started it to resume it."
            )
        return MessiError(f"{self.path} is damaged: {path.name} is missing. {self._remedy(path)}")


def runs_inside(folder: Path) -> list[Path]:
    """Return the run folders inside a folder, such as those of several targets."""
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return [place for place in places if RunDir(place).description.is_file()]


def _advice(folder: Path) -> str:
    """Suggest which folder to name instead of one that is not a run."""
    names = [run.name for run in runs_inside(folder)]
    if not names:
        return "Name the folder of a run."
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"It contains {len(names)} runs: {', '.join(names[:_NAMED])}{more}; name one of them."


def folder_name(text: str) -> str:
    """Turn text, such as the name of a domain, into a folder name that cannot leave the parent folder."""
    name = text.translate(_SEPARATORS)
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
