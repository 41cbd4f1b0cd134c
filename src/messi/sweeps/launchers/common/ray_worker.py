"""The part of the Ray launcher that is executed on a node: an actor with a process that does one run after another.

The runs are in a process of their own, so that one that crashes is told from a node that is lost, and one that is
stopped saves a checkpoint first. The process stops when the actor dies, for example because the driver has died.
"""

import contextlib
import functools
import importlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from messi.core.info import version
from messi.core.lock import BusyError, always, locked
from messi.data.disk import received_home
from messi.sweeps.launchers.common.run_process import RunProcess
from messi.sweeps.launchers.common.sent_files import Files, changed_files, keep_data, stamps, write_files

SharedDisk = Literal["detect", "yes", "no"]
_LOOK_AGAIN = 1.0
"""Seconds between two looks at the files of a run."""
_WAIT_FOR_LOCK = 60.0
"""Seconds that a run of a lost worker or driver has to save a checkpoint and stop."""


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """What a worker must know of the plan."""

    cwd: str
    """The driver's working folder, which paths are relative to."""
    token: str
    """The path of a file in the plan's folder."""
    shared_disk: SharedDisk
    data: tuple[str, ...]
    """Paths of data."""
    own_files: Mapping[str, bytes]
    """The contents of the user's own files by path."""
    device: str
    devices: int
    """How many devices share the steps of a run."""
    threads: int
    send_every: float


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What a worker finds on its node."""

    host: str
    version: str
    shared_disk: bool
    """Whether the node sees the plan's folder, and the runs are written there."""
    missing: tuple[str, ...]
    """Paths of data that the node does not have."""


@dataclass(frozen=True)
class SentData:
    """A file or folder of data that a node does not have."""

    name: str
    digest: str
    files: Any
    """A reference to them."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A run to do."""

    name: str
    planned: Mapping[str, Any]
    folder: str
    data_paths: Mapping[str, str]
    """Fields of the data's config that are paths."""
    files: Files = field(default_factory=dict)
    """The run folder so far, if the node does not see it."""
    needs: Mapping[str, Any] = field(default_factory=dict)
    """References to the model files of other runs by name, unless they were sent before."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """The end of a run, or files of a run that continues."""

    files: Files
    """Changed files, if the node does not see the plan's folder."""
    ended: bool = False
    failure: str | None = None


class RayWorker:
    """Does one run after another on a node."""

    def __init__(self, workplace: Workplace) -> None:
        self._workplace, self._received = workplace, dict[str, str]()
        self._scratch: Path | None = None
        self._held = contextlib.ExitStack()
        seen = Path(workplace.cwd, workplace.token).exists()
        if not seen or workplace.shared_disk == "no":
            self._scratch = self._held.enter_context(_scratch_folder())
        with contextlib.suppress(OSError):  # a folder that is only on the driver's machine
            os.chdir(workplace.cwd)
        self._process = RunProcess(workplace.device, workplace.threads)

    def arrive(self) -> Arrival:
        """Report what this node has."""
        here = self._workplace
        return Arrival(
            host=socket.gethostname(),
            version=version(),
            shared_disk=self._scratch is None,
            missing=tuple(path for path in here.data if not Path(here.cwd, path).exists()),
        )

    def receive(self, data: Mapping[str, SentData]) -> None:
        """Keep data that this node does not have, by path."""
        for path, sent in data.items():
            folder = keep_data(received_home(), sent.digest, functools.partial(_get, sent.files))
            self._received[path] = str(folder / sent.name)

    def do(self, task: Task) -> Update:
        """Start or resume a run, then return like :meth:`wait`."""
        folder, here = Path(task.folder), self._workplace
        if self._scratch:
            folder = self._scratch / task.name
            for name, reference in task.needs.items():
                write_files(self._scratch / name, _get(reference))
            write_files(folder, task.files)
        else:
            _wait_for_lock(folder)
        self._folder, self._known, self._sent = folder, stamps(folder), time.monotonic()
        paths = {name: self._received.get(path, str(Path(here.cwd, path))) for name, path in task.data_paths.items()}
        self._process.begin(task.planned, folder, data_paths=paths, own_files=here.own_files, devices=here.devices)
        return self.wait()

    def wait(self) -> Update:
        """Return when the run has ended, or when it is time to send what has changed."""
        every = self._workplace.send_every
        while not self._process.tasks.poll(min(every, _LOOK_AGAIN)):
            if self._scratch and time.monotonic() - self._sent >= every:
                self._sent = time.monotonic()
                if files := changed_files(self._folder, self._known):
                    return Update(files=files)
        failure = self._process.answer()
        files = changed_files(self._folder, self._known) if self._scratch else {}
        if self._scratch:
            shutil.rmtree(self._folder)
        return Update(files=files, ended=True, failure=failure)

    def stop(self) -> None:
        """Let the run save a checkpoint and end."""
        self._process.interrupt()

    def leave(self) -> None:
        """End the process and remove what is on the disk of this node."""
        self._process.interrupt()  # it does no run, but may still be loading torch
        self._process.end()
        self._held.close()


def _get(reference: Any) -> Files:
    """Return an object of Ray; a node receives it once for all its workers."""
    files: Files = importlib.import_module("ray").get(reference)
    return files


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Create a folder for runs, after removing those that killed workers have left."""
    home, prefix = Path(tempfile.gettempdir()), f"messi-ray-{os.getuid()}-"
    with contextlib.ExitStack() as held:
        with locked(home, home / f"{prefix}lock", wait=True):
            for left in home.glob(f"{prefix}*/"):
                with contextlib.suppress(BusyError), locked(left, left / "lock", remove=always):
                    shutil.rmtree(left, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=prefix))
            held.enter_context(locked(folder, folder / "lock"))
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_lock(folder: Path) -> None:
    """Wait until a process of a lost worker or driver has stopped; otherwise the run reports that it is busy."""
    end = time.monotonic() + _WAIT_FOR_LOCK
    while (folder / "lock").exists() and time.monotonic() < end:
        with contextlib.suppress(BusyError), locked(folder, folder / "lock"):
            return
        time.sleep(0.2)
