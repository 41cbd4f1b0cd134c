"""How far a plan is, read from its folder: the same for every launcher, from any process. Nothing here loads torch."""

import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from messi.core.checksum import parse_values
from messi.core.files import open_regular
from messi.core.lock import is_held
from messi.core.rundir import RunDir
from messi.sweeps.run_states import ListedRun, read_state

Activity = Literal["done", "paused", "running", "stopped", "failed", "waiting"]
UNFINISHED: tuple[Activity, ...] = ("running", "stopped", "waiting")
SILENT = 600.0
"""Seconds without a record after which a run seems dead if it has no lock file, as one on another machine."""
_TAIL = 1 << 18
"""Bytes at the end of the records that are read: those of the last evaluation, even of hundreds of domains."""
_RECENT = 50
"""The number of finished runs from which the rate is computed."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Where a run of a plan stands."""

    run: ListedRun
    activity: Activity
    reason: str = ""
    """Why the run failed."""
    step: int = 0
    validation: float | None = None
    """The last accuracy on the validation part of the source domains, or that of the selected model; never a target."""
    began: float = 0.0
    """When the run was started, in seconds since 1970."""
    written: float = 0.0
    """When its last file was written."""
    resumed: bool = False

    @property
    def seconds(self) -> float | None:
        """The time from the start to the last file; None if the run was interrupted in between or is an average."""
        return None if self.resumed or not self.run.steps else max(self.written - self.began, 1e-3)

    @property
    def speed(self) -> float | None:
        """The steps per second of a running run, with its evaluations."""
        return self.step / self.seconds if self.activity == "running" and self.step and self.seconds else None


@dataclass(frozen=True)
class PlanStatus:
    """Where all runs of a plan stand at one time."""

    runs: Sequence[RunStatus]
    now: float

    def of(self, activity: Activity) -> list[RunStatus]:
        """Return the runs in a state."""
        return [run for run in self.runs if run.activity == activity]

    @property
    def counts(self) -> Counter[Activity]:
        """The number of runs in every state."""
        return Counter(run.activity for run in self.runs)

    @property
    def best(self) -> RunStatus | None:
        """The finished run with the highest accuracy on the validation part of the source domains."""
        done = [run for run in self.runs if run.activity == "done" and run.validation is not None]
        return max(done, key=lambda run: run.validation or 0.0, default=None)

    @property
    def runs_per_hour(self) -> float | None:
        """How many runs finish in an hour with as many at a time as now; None if nothing runs or nothing is known."""
        if not (pace := self._seconds_per_step()):
            return None
        steps = statistics.fmean(run.run.steps for run in self.of("running"))
        return 3600 * self.counts["running"] / (pace * steps)

    @property
    def seconds_left(self) -> float | None:
        """The time until all runs that have not failed are finished; None if nothing runs or nothing is known."""
        unfinished = [run for run in self.runs if run.activity in UNFINISHED]
        steps = sum(run.run.steps - min(run.step, run.run.steps) for run in unfinished)
        pace = self._seconds_per_step()
        return pace * steps / self.counts["running"] if pace else None

    def _seconds_per_step(self) -> float | None:
        """Return the usual duration of a step of one run: of the last finished runs, else of those that are running."""
        if not any(run.run.steps for run in self.of("running")):
            return None
        last = sorted(self.of("done"), key=lambda run: run.written)[-_RECENT:]
        paces = [run.seconds / run.run.steps for run in last if run.seconds]
        paces = paces or [1 / run.speed for run in self.of("running") if run.speed]
        return statistics.median(paces) if paces else None


class PlanWatch:
    """Reads the status of a plan repeatedly; finished runs are read once."""

    def __init__(self, folder: Path, runs: Sequence[ListedRun]) -> None:
        self._folder, self._runs = folder, runs
        self._done: dict[str, RunStatus] = {}

    def read(self) -> PlanStatus:
        """Return the current status."""
        now, seen = time.time(), self._seen()
        found = [self._done.get(run.name) or self._read(run, now, seen) for run in self._runs]
        self._done = {status.run.name: status for status in found if status.activity == "done"}
        return PlanStatus(found, now)

    def _read(self, run: ListedRun, now: float, seen: set[str]) -> RunStatus:
        return _read(self._folder, run, now) if run.name in seen else RunStatus(run=run, activity="waiting")

    def _seen(self) -> set[str]:
        """Return the names of the runs that have a folder or have failed: two lists instead of files for every run."""
        places = [place for part in ("runs", "failed") if (place := self._folder / part).is_dir()]
        return {name.removesuffix(".txt") for place in places for name in os.listdir(place)}  # noqa: PTH208 (names suffice)


def _read(folder: Path, run: ListedRun, now: float) -> RunStatus:
    place, found = RunDir(folder / "runs" / run.name), read_state(folder, run)
    if found.state == "waiting" or found.state == "failed":  # noqa: PLR1714 (mypy narrows only this)
        return RunStatus(run=run, activity=found.state, reason=found.reason)
    lock = place.path / "lock"
    began, locked = _written(place.description), _written(lock)
    resumed = locked > began  # the first attempt takes the lock and then writes run.json
    if found.result:
        validation = statistics.fmean(found.result.source_val.values()) if found.result.source_val else None
        written = _written(place.result)
        return RunStatus(
            run=run,
            activity="done",
            step=run.steps,
            validation=validation,
            began=began,
            written=written,
            resumed=resumed,
        )
    written = max(_written(place.records), began, locked)
    alive = is_held(lock) if locked else now - written < SILENT
    step, validation = _last_records(place.records)
    return RunStatus(
        run=run,
        activity="paused" if found.state == "paused" else "running" if alive else "stopped",
        step=step,
        validation=validation,
        began=began,
        written=written,
        resumed=resumed,
    )


def _written(file: Path) -> float:
    """Return when a file was last written; 0 if there is none."""
    with suppress(OSError):
        return file.stat().st_mtime
    return 0.0


def _last_records(file: Path) -> tuple[int, float | None]:
    """Return the last recorded step and the last accuracy on the validation part of the source domains."""
    try:
        with open_regular(file) as opened:
            start = max(0, file.stat().st_size - _TAIL)
            opened.seek(start)
            lines = opened.read().split(b"\n")[1 if start else 0 : -1]
    except OSError:
        return 0, None
    step, accuracies, validation = 0, dict[str, float](), None
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):  # a damaged record is reported when the run is resumed
            record = parse_values(line)
            step = max(step, int(record.get("step", 0)))
            if record.get("role") != "source_val" or record.get("averaged"):
                continue
            if record["kind"] == "evaluation":
                accuracies[record["domain"]] = float(record["accuracy"])
            elif record["kind"] == "role" and accuracies:  # it follows those of all domains
                validation, accuracies = statistics.fmean(accuracies.values()), {}
    return step, validation
