"""What a run measured, as append-only JSON lines. Selection and reports are functions of these lines alone."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal

from messi.core.checksum import MISMATCH, Running, checksum, parse_values
from messi.core.documents import parse
from messi.core.errors import MessiError, writing
from messi.core.files import open_regular, read_regular

Role = Literal["train", "source_val", "unseen_val", "source_test", "target"]
"""What an example is for: of source domains to train, validate and test on; of unseen ones to validate and test on."""


@dataclass(frozen=True, kw_only=True)
class TrainRecord:
    """The mean of each weighted loss term over the steps since the record before."""

    kind: ClassVar[str] = "train"
    step: int
    terms: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """How the model after ``step`` steps did on one domain in one role."""

    kind: ClassVar[str] = "evaluation"
    step: int
    role: Role
    domain: str
    count: int
    accuracy: float
    loss: float
    averaged: bool = False
    """Whether its weights are the mean over several steps, of which ``step`` is the last."""


@dataclass(frozen=True, kw_only=True)
class RoleRecord:
    """How the model after ``step`` steps did on all examples in one role together, whatever their domain."""

    kind: ClassVar[str] = "role"
    step: int
    role: Role
    count: int
    accuracy: float
    macro_f1: float
    """The mean F1 over the classes that occur in the role."""
    averaged: bool = False


@dataclass(frozen=True, kw_only=True)
class RoutingRecord:
    """The mean expert weights P(expert | domain, class) of the selected model."""

    kind: ClassVar[str] = "routing"
    role: Role
    domain: str
    label: str
    count: int
    experts: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ExampleRecord:
    """One image and what the selected model said of it."""

    kind: ClassVar[str] = "example"
    role: Role
    domain: str
    image: str
    """A PNG file, relative to the run folder."""
    label: str
    predicted: str
    probability: float
    experts: tuple[float, ...]
    """Empty when the method has no router."""


Record = TrainRecord | EvaluationRecord | RoleRecord | RoutingRecord | ExampleRecord
_KINDS: dict[str, type[Record]] = {
    cls.kind: cls for cls in (TrainRecord, EvaluationRecord, RoleRecord, RoutingRecord, ExampleRecord)
}


class RecordWriter:
    """Appends records to a file that first is cut back to ``size`` bytes, the length known to be good.

    These must have the checksum that was noted of them, if one was: what is appended would otherwise hide the damage.
    """

    def __init__(self, path: Path, *, size: int, expected: str | None = None) -> None:
        self.path, self.size = path, size
        self._running = Running(read_beginning(path, size=size, expected=expected))
        with writing(path):
            self._file = path.open("ab")
            self._file.truncate(size)

    @property
    def checksum(self) -> str:
        """The checksum of everything written so far."""
        return self._running.hexdigest()

    def write(self, record: Record) -> None:
        """Append one record."""
        line = json.dumps({"kind": record.kind, **asdict(record)}).encode() + b"\n"
        with writing(self.path):
            self._file.write(line)
            self._file.flush()
        self._running.update(line)
        self.size += len(line)

    def sync(self) -> None:
        """Bring everything written so far to the disk; safe in another thread, meanwhile, than the one that writes."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_beginning(path: Path, *, size: int, expected: str | None) -> bytes:
    """Return the first bytes of a file of records, which must have the expected checksum, if there is one."""
    if size == 0 and not path.exists():
        return b""
    try:
        with open_regular(path) as file:
            content = file.read(min(size, path.stat().st_size))
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if len(content) < size or expected not in (None, checksum([content])):
        raise _unreadable(path, MISMATCH)
    return content


def _unreadable(path: Path, reason: str) -> MessiError:
    return MessiError(
        f"{path} is damaged: {reason}. Restore it from a copy, or delete the folder {path.parent} and repeat the "
        "command that made it."
    )


def read_records(path: Path) -> list[Record]:
    """Read all whole lines; an unfinished last line is one that a killed process was writing."""
    if not path.exists():
        return []
    try:
        content = read_regular(path)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    return list(_parse(path, content))


def _parse(path: Path, content: bytes) -> Iterator[Record]:
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            values = parse_values(line)
            kind = values.pop("kind", None)
            if not isinstance(kind, str) or kind not in _KINDS:
                raise ValueError(f"there is no kind of record {kind!r}.")
            record: Record = parse(_KINDS[kind], values)
        except (ValueError, MessiError) as error:
            raise MessiError(
                f"{path}, line {number}, is not a record of messi: {error} Restore the file from a copy, or delete the "
                "folder and repeat the command that made it."
            ) from error
        yield record
