"""Run a plan on a Ray cluster, whose nodes need no common disk; a run of a lost node resumes on another one."""

import contextlib
import importlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from messi.core.config import Bounds
from messi.core.errors import MessiError
from messi.core.registry import read_own_file
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.launchers.common.ray_driver import RayDriver, located_data, token_in
from messi.sweeps.launchers.common.ray_worker import RayWorker, SharedDisk, Workplace
from messi.sweeps.one_run import own_files_of
from messi.sweeps.plan import Outcome, Plan

_CONNECT_WITHIN = 10.0
_HTTP2_SETTINGS = b"\4"
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _HTTP2_SETTINGS + bytes(5)


@dataclass(frozen=True, kw_only=True)
class Ray(Launcher):
    """A Ray cluster."""

    address: str | None = None
    """Address of the cluster, such as 10.0.0.5:6379, or auto for the one on this machine; by default a local one."""
    cpus_per_run: Annotated[int, Bounds(minimum=1)] = 1
    """CPUs, and threads, of a run."""
    gpus_per_run: Annotated[float, Bounds(minimum=0)] | None = None
    """GPUs of a run, which share its steps, or 0.25 for four runs per GPU; by default 1 if the cluster has GPUs."""
    at_a_time: Annotated[int, Bounds(minimum=1)] | None = None
    """Maximum number of runs at a time; by default as many as the cluster has room for."""
    shared_disk: SharedDisk = "detect"
    """Whether the nodes see the plan's folder; run folders are sent back from nodes that do not."""
    send_every: Annotated[float, Bounds(above=0)] = 60.0
    """Without a shared disk: seconds after which changed files of a run, such as its checkpoint, are sent back."""

    def __post_init__(self) -> None:
        """Refuse a number of GPUs that Ray refuses."""
        super().__post_init__()
        gpus = self.gpus_per_run or 0
        if gpus > 1 and gpus % 1:
            raise MessiError(f"gpus_per_run must be at most 1 or a whole number, but is {gpus}.")

    def describe(self, runs: int) -> str:
        """Return on which cluster the runs are executed."""
        place = f"on the Ray cluster {self.address}" if self.address else "on a local Ray cluster"
        return f"{place}, at most {min(self.at_a_time, runs)} at a time" if self.at_a_time else place

    def launch(self, plan: Plan, on_end: Callable[[Outcome], None] = lambda _outcome: None) -> None:
        """Do every unfinished run; nodes may join and leave meanwhile."""
        runs = plan.unfinished()
        if not runs:
            return
        with self._cluster() as ray, token_in(plan.folder) as token:
            gpus = self._gpus(ray)
            workplace = Workplace(
                cwd=str(Path.cwd()),
                token=token,
                shared_disk=self.shared_disk,
                data=tuple(dict.fromkeys(path for run in runs for path in located_data(run).values())),
                own_files={file: read_own_file(file) for run in runs for file in own_files_of(run.to_dict())},
                device="cuda" if gpus else "cpu",
                devices=max(1, int(gpus)),
                threads=self.cpus_per_run,
                send_every=self.send_every,
            )
            options = {"num_cpus": self.cpus_per_run, "num_gpus": gpus, "max_concurrency": 2}  # to stop a run
            actor = ray.remote(RayWorker).options(**options)
            driver = RayDriver(
                ray, plan, on_end, workplace=workplace, new_actor=actor.remote, room=lambda: self._room(ray, gpus)
            )
            driver.run(runs)

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[Any]:
        """Connect to the cluster, or start one; a connection that this process already has is used and kept."""
        try:
            ray = importlib.import_module("ray")
        except ModuleNotFoundError as error:
            raise MessiError("Ray is not installed; install it with: pip install 'messi-dg[ray]'.") from error
        if ray.is_initialized():
            yield ray
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported unless the user wants it
        local = {"address": "local", "include_dashboard": False}
        with _keep_sigterm():
            try:
                if self.address:
                    _require_answer(self.address)
                place = {"address": self.address} if self.address else local
                ray.init(**place, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, RuntimeError, ValueError) as error:
                what = "Ray could not be started"
                if self.address:
                    what = f"The Ray cluster {self.address} cannot be reached"
                raise MessiError(
                    f"{what} ({' '.join(str(error).split())}); check --address and that 'ray status' works."
                ) from error
            try:
                yield ray
            finally:
                ray.shutdown()

    def _gpus(self, ray: Any) -> float:
        if self.gpus_per_run is not None:
            return self.gpus_per_run
        return float(any(resources.get("GPU", 0) >= 1 for resources in _nodes(ray)))

    def _room(self, ray: Any, gpus: float) -> int:
        """Return how many runs can be done at a time; raise if it is none."""
        nodes = _nodes(ray)
        room = sum(_fitting(node, self.cpus_per_run, gpus) for node in nodes)
        if room == 0:
            asked = {"CPU": self.cpus_per_run, "GPU": gpus}
            most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in asked}
            lacking = [name for name in asked if asked[name] > most[name]] or list(asked)
            wanted, there = (" and ".join(f"{one[name]:g} {name}s" for name in lacking) for one in (asked, most))
            options = " or ".join(f"--{name.lower()}s-per-run" for name in lacking)
            raise MessiError(
                f"A run asks for {wanted}, but no node of the Ray cluster has that much (at most {there}); "
                f"lower {options}, or add a node."
            )
        return min(room, self.at_a_time or room)


@contextlib.contextmanager
def _keep_sigterm() -> Iterator[None]:
    """Restore the handler of SIGTERM after the block: Ray leaves its own behind."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) != before:  # never so in other threads, which may not change it
            signal.signal(signal.SIGTERM, before)


def _nodes(ray: Any) -> list[dict[str, float]]:
    """Return the resources of every node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _fitting(node: dict[str, float], cpus: int, gpus: float) -> int:
    """Return how many runs fit on a node; one with a fraction of a GPU uses a single GPU."""
    by_cpu = int(node.get("CPU", 0) // cpus)
    if not gpus:
        return by_cpu
    there = int(node.get("GPU", 0))
    return min(by_cpu, there // int(gpus) if gpus >= 1 else there * int(1 / gpus + 1e-9))


def _require_answer(address: str) -> None:
    """Raise an OSError unless a gRPC server answers, as Ray's does: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host, int(port)), timeout=_CONNECT_WITHIN) as connection:
            if os.environ.get("RAY_USE_TLS") != "1":
                connection.sendall(_HTTP2_GREETING)
                if connection.recv(9)[3:4] != _HTTP2_SETTINGS:
                    raise ConnectionError("what answers there is not Ray")
