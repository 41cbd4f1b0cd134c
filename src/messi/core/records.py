"""The measurements of a run, as append-only JSON lines. Selection and reports depend only on these lines."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from messi.core.checksum import MISMATCH, RunningChecksum, checksum, parse_values
from messi.core.config import Bounds
from messi.core.documents import parse
from messi.core.errors import MessiError, writing
from messi.core.files import open_regular, read_regular

Role = Literal["train", "source_val", "unseen_val", "source_test", "target", "target_val"]
"""The use of an example: train, validate or test on source domains; validate or test on unseen domains.

The last is the part of the target that the oracle validates on, and is measured for it alone.
"""


Share = Annotated[float, Bounds(minimum=0, maximum=1)]


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """What accuracy hides if classes are unbalanced; recorded for unbalanced data only."""

    balanced_accuracy: Share
    """The mean recall over the classes that occur."""
    macro_f1: Share
    """The mean F1 over the classes that occur."""
    majority_share: Share
    """The share of the most frequent class: the accuracy of always predicting it."""


@dataclass(frozen=True, kw_only=True)
class TrainRecord:
    """The mean of each weighted loss term over the steps since the previous record."""

    kind: ClassVar[str] = "train"
    step: int
    terms: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """The accuracy and loss after ``step`` steps on one domain in one role."""

    kind: ClassVar[str] = "evaluation"
    step: int
    role: Role
    domain: str
    count: int
    accuracy: float
    loss: float
    averaged: bool = False
    """Whether the weights are an average over several steps, of which ``step`` is the last."""
    class_scores: ClassScores | None = None


@dataclass(frozen=True, kw_only=True)
class RoleRecord:
    """The scores after ``step`` steps on all examples in one role, over all domains."""

    kind: ClassVar[str] = "role"
    step: int
    role: Role
    count: int
    accuracy: float
    macro_f1: float
    """The mean F1 over the classes that occur in the role."""
    averaged: bool = False
    class_scores: ClassScores | None = None


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
    """One image and the prediction of the selected model."""

    kind: ClassVar[str] = "example"
    role: Role
    domain: str
    image: str
    """A PNG file, relative to the run folder."""
    label: str
    predicted: str
    probability: float
    experts: tuple[float, ...]
    """Empty if the method has no router."""


Record = TrainRecord | EvaluationRecord | RoleRecord | RoutingRecord | ExampleRecord
_KINDS: dict[str, type[Record]] = {
    cls.kind: cls for cls in (TrainRecord, EvaluationRecord, RoleRecord, RoutingRecord, ExampleRecord)
}


class RecordWriter:
    """Appends records to a file, after truncating it to ``size`` bytes, the length known to be valid.

    These bytes must have the ``expected`` checksum, if it is known: otherwise the new records would hide damage.
    """

    def __init__(self, path: Path, *, size: int, expected: str | None = None) -> None:
        self.path, self.size = path, size
        self._running = RunningChecksum(read_beginning(path, size=size, expected=expected))
        with writing(path):
            self._file = path.open("ab")
            self._file.truncate(size)

    @property
    def checksum(self) -> str:
        """The checksum of everything written so far."""
        return self._running.hexdigest()

    def write(self, record: Record) -> None:
        """Append one record."""
        values = {name: value for name, value in asdict(record).items() if value is not None}
        line = json.dumps({"kind": record.kind, **values}).encode() + b"\n"
        with writing(self.path):
            self._file.write(line)
            self._file.flush()
        self._running.update(line)
        self.size += len(line)

    def sync(self) -> None:
        """Flush everything written so far to the disk; another thread may call this during a write."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_beginning(path: Path, *, size: int, expected: str | None) -> bytes:
    """Return the first bytes of a records file; raise unless they have the expected checksum, if one is given."""
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
        "command that created it."
    )


def read_records(path: Path) -> list[Record]:
    """Read all complete lines; a killed process may leave an incomplete last line."""
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
                raise ValueError(f"there is no record kind {kind!r}")
            record: Record = parse(_KINDS[kind], values)
        except (ValueError, MessiError) as error:
            raise MessiError(
                f"{path}, line {number}, is not a record of messi: {str(error).rstrip('.')}. Restore the file from a "
                "copy, or delete the folder and repeat the command that created it."
            ) from error
        yield record
