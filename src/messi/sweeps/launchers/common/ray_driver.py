"""The part of the Ray launcher that distributes the runs of a plan and collects what comes back."""

import contextlib
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.data.datasets.table import Table
from messi.sweeps.launchers.common.ray_worker import Arrival, SentData, Task, Update, Workplace
from messi.sweeps.launchers.common.sent_files import (
    MODEL_FILES,
    Files,
    data_digest,
    read_data,
    run_files,
    write_files,
)
from messi.sweeps.plan import Outcome, Plan, Planned

_LOOK_AGAIN = 5.0
"""Seconds after which new nodes are noticed."""
_MOST_LOSSES = 3
"""A run whose worker is lost this often without a new checkpoint in between may itself be the reason."""
_STOP_WITHIN = 60.0
"""Seconds that runs have to save a checkpoint when the plan is stopped."""


class Worker:
    """The driver's view of a worker: the run that it does, and its answer to come."""

    def __init__(self, actor: Any) -> None:
        self.actor, self.answer = actor, actor.arrive.remote()
        self.run: Planned | None = None
        self.arrived = False
        self.shared_disk = True
        self.has: set[str] = set()
        """Names of runs whose model files were sent."""
        self.lock = contextlib.ExitStack()
        """Of the run folder, while the files of the run come back."""


class RayDriver:
    """Distributes runs over the nodes of a cluster until all have ended."""

    def __init__(
        self,
        ray: Any,
        plan: Plan,
        on_end: Callable[[Outcome], None],
        *,
        workplace: Workplace,
        new_actor: Callable[[Any], Any],
        room: Callable[[], int],
    ) -> None:
        self._ray, self._plan, self._on_end, self._workplace = ray, plan, on_end, workplace
        self._new_actor = new_actor
        self._room = room
        self._workers: list[Worker] = []
        self._data_sent: dict[str, SentData] = {}
        self._models_sent: dict[str, Any] = {}
        self._leaving: list[Any] = []
        self._failed_starts = 0
        self._losses: Counter[tuple[str, int]] = Counter()

    def run(self, runs: list[Planned]) -> None:
        """Do all runs; if this is interrupted, they save a checkpoint and stop."""
        self._waiting = deque(runs)
        try:
            while self._waiting or any(worker.run for worker in self._workers):
                self._add_workers()
                answers = {worker.answer: worker for worker in self._workers}
                ready, _ = self._ray.wait(list(answers), timeout=_LOOK_AGAIN)
                for answer in ready:
                    self._handle(answers[answer])
        finally:
            self._stop()

    def _add_workers(self) -> None:
        """Use nodes that are new or free; a worker that waits for its node waits in Ray."""
        busy = sum(worker.run is not None for worker in self._workers)
        for _ in range(min(self._room(), len(self._waiting) + busy) - len(self._workers)):
            self._workers.append(Worker(self._new_actor(self._workplace)))

    def _handle(self, worker: Worker) -> None:
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(worker.answer)
        except errors.RayTaskError as error:
            if worker.run is None:
                raise MessiError(f"A worker could not start on the Ray cluster: {_last_line(error)}") from error
            answer = Update(files={}, ended=True, failure=str(error))
        except errors.RayError as error:
            self._lose(worker, error)
            return
        if isinstance(answer, Update):
            self._update(worker, answer)
        elif isinstance(answer, Arrival):
            self._failed_starts = 0
            self._welcome(worker, answer)
        else:  # it has received data
            self._next(worker)

    def _welcome(self, worker: Worker, arrival: Arrival) -> None:
        """Check that a worker can do the runs of the plan, and send it the data that its node does not have."""
        if arrival.version != version():
            raise MessiError(
                f"The node {arrival.host} has messi {arrival.version} instead of {version()}; install the same version."
            )
        if self._workplace.shared_disk == "yes" and not arrival.shared_disk:
            raise MessiError(
                f"The node {arrival.host} does not see the folder {self._plan.folder.absolute()}; choose a folder on a "
                "disk that all nodes share with --out, or omit --shared-disk yes."
            )
        worker.arrived, worker.shared_disk = True, arrival.shared_disk
        if arrival.missing:
            worker.answer = worker.actor.receive.remote({path: self._data(path) for path in arrival.missing})
        else:
            self._next(worker)

    def _next(self, worker: Worker) -> None:
        """Give a worker the next run, or let it go."""
        if not self._waiting:
            self._workers.remove(worker)
            self._dismiss(worker)
            return
        run = self._waiting.popleft()
        self._plan.forget_failure(run)
        folder = self._plan.path(run)
        files: Files = {}
        needs: dict[str, Any] = {}
        if not worker.shared_disk:
            try:
                worker.lock.enter_context(RunDir(folder).locked())
            except MessiError as error:
                self._on_end(self._plan.record_end(run, str(error)))
                self._next(worker)
                return
            files = {name: path.read_bytes() for name, path in run_files(folder)}
            needs = {name: self._model(name) for name in run.needs if name not in worker.has}
            worker.has.update(needs)
        worker.run = run
        task = Task(
            name=run.name,
            planned=run.to_dict(),
            folder=str(folder),
            data_paths=located_data(run),
            files=files,
            needs=needs,
        )
        worker.answer = worker.actor.do.remote(task)

    def _update(self, worker: Worker, update: Update) -> None:
        assert worker.run is not None  # noqa: S101 (for the type checker)
        write_files(self._plan.path(worker.run), update.files)
        if not update.ended:
            worker.answer = worker.actor.wait.remote()
            return
        run = self._free(worker)
        self._on_end(self._plan.record_end(run, update.failure))
        self._next(worker)

    def _free(self, worker: Worker) -> Planned:
        assert worker.run is not None  # noqa: S101 (for the type checker)
        run, worker.run = worker.run, None
        worker.lock.close()
        return run

    def _lose(self, worker: Worker, error: Exception) -> None:
        """Do the run of a lost worker again, from its last checkpoint."""
        self._workers.remove(worker)
        self._ray.kill(worker.actor)  # it may only be out of reach
        if worker.run is None:
            self._failed_starts += 1
            if self._failed_starts == _MOST_LOSSES:
                raise MessiError(f"No worker could start on the Ray cluster: {_last_line(error)}") from error
            return
        run = self._free(worker)
        checkpoint = RunDir(self._plan.path(run)).last
        progress = run.name, checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        self._losses[progress] += 1
        if self._losses[progress] < _MOST_LOSSES:
            self._waiting.appendleft(run)
        else:
            reason = f"Its worker was lost {_MOST_LOSSES} times without a new checkpoint: {_last_line(error)}"
            self._on_end(self._plan.record_end(run, reason))

    def _stop(self) -> None:
        """Let runs that are still going save a checkpoint, fetch it and dismiss all workers."""
        busy = [worker for worker in self._workers if worker.run]
        for worker in busy:
            worker.actor.stop.remote()
        for worker in busy:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._collect_last(worker)
            worker.lock.close()
        for worker in self._workers:
            self._dismiss(worker)
        self._workers.clear()
        if self._leaving:
            self._ray.wait(self._leaving, num_returns=len(self._leaving), timeout=_STOP_WITHIN)

    def _collect_last(self, worker: Worker) -> None:
        assert worker.run is not None  # noqa: S101 (for the type checker)
        ended = False
        while not ended:
            update = self._ray.get(worker.answer, timeout=_STOP_WITHIN)
            write_files(self._plan.path(worker.run), update.files)
            ended = update.ended
            if not ended:
                worker.answer = worker.actor.wait.remote()

    def _dismiss(self, worker: Worker) -> None:
        """Let a worker clean up; Ray ends it afterwards, because nothing refers to it any more."""
        if worker.arrived:
            self._leaving.append(worker.actor.leave.remote())
        else:
            self._ray.kill(worker.actor)

    def _data(self, path: str) -> SentData:
        """Return data to send to a node; it is read once for all nodes."""
        if path not in self._data_sent:
            if any(
                isinstance(d := run.config.data, Table) and d.path == path and not d.root for run in self._plan.runs
            ):
                raise MessiError(
                    f"The table {path} is not on every node of the cluster; copy it and its images to the same path on "
                    "every node, or name the folder of the images with --root so that both are sent."
                )
            place = Path(path).resolve()
            files = read_data(place)
            self._data_sent[path] = SentData(place.name, data_digest(files), self._ray.put(files))
        return self._data_sent[path]

    def _model(self, name: str) -> Any:
        """Return a reference to the model files of a finished run; they are read once for all nodes."""
        if name not in self._models_sent:
            folder = self._plan.folder / "runs" / name
            files = {file: (folder / file).read_bytes() for file in MODEL_FILES if (folder / file).exists()}
            self._models_sent[name] = self._ray.put(files)
        return self._models_sent[name]


def located_data(run: Planned) -> dict[str, str]:
    """Return the fields of a run's data that are paths."""
    data = run.config.data
    return {name: value for name in data.location_fields if isinstance(value := getattr(data, name, None), str)}


@contextlib.contextmanager
def token_in(folder: Path) -> Iterator[str]:
    """Write a file by which a node recognises the folder; a folder of the same name elsewhere does not have it."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("ray-*.tmp"):  # by a driver that was killed
        left.unlink(missing_ok=True)
    token = folder / f"ray-{secrets.token_hex(8)}.tmp"
    token.touch()
    try:
        yield str(token)
    finally:
        token.unlink(missing_ok=True)


def _last_line(error: Exception) -> str:
    return next(reversed(str(error).strip().splitlines()), type(error).__name__)
