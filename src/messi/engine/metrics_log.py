"""The metrics of training: loss terms and evaluations, kept, passed on to the observers and, in a run, recorded."""

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from messi.core.batch import LossTerms
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, Record, RecordWriter, RoleRecord, TrainRecord, read_records
from messi.engine.async_writer import Snapshot
from messi.engine.observers import Observer


class NonFiniteLossError(MessiError):
    """A loss is infinite or not a number."""


class Metrics:
    """Keeps loss terms on the device, copies them once per interval, and still checks them for every step.

    A GPU copies them while training continues. They are recorded before any later record.
    """

    kept: ClassVar[str] = ""
    """What an error says of the state before it."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers
        self.terms: list[str] = []
        self.rows: list[Tensor] = []
        """One [terms] tensor for every step since the last record."""
        self._coming: tuple[int, Snapshot] | None = None
        """The step of a record whose numbers are still being copied, and these numbers."""
        self.evaluations: list[EvaluationRecord | RoleRecord] = []

    def add(self, terms: LossTerms) -> None:
        """Keep the terms of a step, without waiting for the device."""
        self.terms = list(terms)
        self.rows.append(torch.stack([term.detach().float() for term in terms.values()]))

    def flush(self, step: int) -> None:
        """Record the mean of every term since the last record, once the device has copied it."""
        self._settle()
        self._coming = step, Snapshot({"table": torch.stack(self.rows)})
        self.rows.clear()
        if not self._coming[1].pending:
            self._settle()

    def check(self, step: int) -> None:
        """Wait for all numbers up to ``step``; raise an error with step and term if one is not finite."""
        self._settle()
        if self.rows:
            self._checked(torch.stack(self.rows), step)

    def _settle(self) -> None:
        if self._coming is None:
            return
        (step, snapshot), self._coming = self._coming, None
        table = self._checked(snapshot.wait()["table"], step)
        means = [math.fsum(column) / len(table) for column in zip(*table, strict=True)]
        record = TrainRecord(step=step, terms=dict(zip(self.terms, means, strict=True)))
        self.write(record)
        for observer in self.observers:
            observer.logged(step, record.terms)

    def _checked(self, rows: Tensor, step: int) -> list[list[float]]:
        """Return the rows up to ``step`` as numbers."""
        table: list[list[float]] = rows.tolist()
        for row_step, row in enumerate(table, start=step - len(table) + 1):
            for name, value in zip(self.terms, row, strict=True):
                if not math.isfinite(value):
                    raise NonFiniteLossError(
                        f"The loss term '{name}' is {value} at step {row_step}.{self.kept} A lower learning rate or a "
                        "lower weight of the term usually helps."
                    )
        return table

    def write(self, record: Record) -> None:
        """Take a record, after the pending one; evaluations are kept."""
        self._settle()
        if isinstance(record, EvaluationRecord) and not math.isfinite(record.loss):
            raise NonFiniteLossError(
                f"The {record.role} loss on '{record.domain}' is {record.loss} at step {record.step}: the weights are "
                f"no longer finite.{self.kept} Lower the learning rate."
            )
        if isinstance(record, EvaluationRecord | RoleRecord):
            self.evaluations.append(record)


class MetricsLog(Metrics):
    """Also writes every record to the file of a run."""

    kept = " The last checkpoint before it is kept."

    def __init__(self, path: Path, observers: Sequence[Observer]) -> None:
        super().__init__(observers)
        self.path = path
        self._files = ExitStack()

    def open(self, size: int, expected: str | None = None) -> None:
        """Continue after the first ``size`` bytes of the records, which must have the expected checksum.

        Records after that are dropped: the steps that wrote them are repeated.
        """
        self.writer = self._files.enter_context(closing(RecordWriter(self.path, size=size, expected=expected)))
        self.evaluations = [r for r in read_records(self.path) if isinstance(r, EvaluationRecord | RoleRecord)]

    def close(self) -> None:
        """Close the records, if they are open, and notify the observers."""
        self._files.close()
        for observer in self.observers:
            observer.finished()

    def write(self, record: Record) -> None:
        """Write a record, after the pending one."""
        super().write(record)
        self.writer.write(record)
