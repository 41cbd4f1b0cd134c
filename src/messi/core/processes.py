"""The processes of one data-parallel run, and all that they send each other.

``torchrun`` and ``messi train --devices`` start the same command once per process and set RANK, WORLD_SIZE, MASTER_ADDR
and MASTER_PORT. Rank 0 leads: it alone reads and writes the run folder and evaluates. Numbers
on a GPU go through NCCL, everything else through gloo.
"""

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.nn  # before a group exists: its functions would keep the group as a default argument
from torch import Tensor, distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # its stubs do not export it
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.distributed.rendezvous import rendezvous

from messi.core.errors import MessiError
from messi.core.heartbeat import START, Heartbeat, attempt

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# The leader may decode a data set or evaluate while the others wait; the heartbeat notices who hangs or dies.
_PATIENCE = timedelta(days=7)


def launched() -> bool:
    """Return whether this process was started as one of a group."""
    return all(name in os.environ for name in _NEEDED)


def local_rank() -> int:
    """Return the number of this process among those on this machine; 0 if it is not one of a group."""
    return int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))) if launched() else 0


@dataclass(frozen=True)
class Processes:
    """A group that this process has joined."""

    rank: int
    size: int
    heartbeat: Heartbeat

    @property
    def leads(self) -> bool:
        """Whether this process is the one that reads, writes and decides."""
        return self.rank == 0

    def gather(self, part: Tensor) -> Tensor:
        """Return the parts [n, ...] of all processes one after the other: [size n, ...]."""
        part = part.contiguous()
        whole = part.new_empty((self.size * len(part), *part.shape[1:]))
        with self.heartbeat.during("wait"):
            distributed.all_gather_into_tensor(whole, part)
        return whole

    def sum(self, part: Tensor) -> Tensor:
        """Return the sum of the parts of all processes."""
        whole = part.clone()
        with self.heartbeat.during("wait"):
            distributed.all_reduce(whole)
        return whole

    def begin_mean(self, tensors: Sequence[Tensor]) -> Any:
        """Begin to replace tensors by their means over the processes; :meth:`end` of the result ends it.

        All tensors are one message. On a GPU nothing is copied and the host does not wait.
        """
        on_gpu = tensors[0].is_cuda
        if not on_gpu:  # older versions of gloo only sum
            torch._foreach_div_(list(tensors), self.size)
        operation = distributed.ReduceOp.AVG if on_gpu else distributed.ReduceOp.SUM
        with _coalescing_manager(async_ops=True) as message:
            for tensor in tensors:
                distributed.all_reduce(tensor, op=operation)
        return message

    def end(self, message: Any) -> None:
        """Wait for a message; on a GPU, let the current stream wait for it."""
        with self.heartbeat.during("wait"):
            message.wait()

    def share(self, given: Any = None) -> Any:
        """Return what the leader gives, in every process."""
        box = [given]
        with self.heartbeat.during("wait"):
            distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """Enter the block after the leader has left it: it decodes, downloads and reports errors for all."""
        if not self.leads:
            self.share()
        yield
        if self.leads:
            self.share()

    def agree(self, step: int, *, stop: bool) -> tuple[int, bool]:
        """Return the leader's next step, 0 if there is none, and whether any process asks to stop."""
        told = torch.tensor([step if self.leads else 0, stop])
        with self.heartbeat.during("wait"):
            distributed.all_reduce(told, op=distributed.ReduceOp.MAX)
        return int(told[0]), bool(told[1])

    @contextmanager
    def together(self) -> Iterator[None]:
        """End all processes if one fails inside the block; only that one reports an error. Blocks may be nested."""
        if self.heartbeat.alive:
            yield
            return
        with self.heartbeat.beating():
            try:
                yield
                self._meet()
            except BaseException as error:
                atexit.unregister(leave)  # it would wait for operations that the others no longer take part in
                if _is_about_another(error):
                    self.heartbeat.find_culprit()
                raise
        self._meet()  # whoever keeps the store must not end while another process still beats

    def _meet(self) -> None:
        self.sum(torch.zeros(()))

    def require_same(self, tensors: Sequence[Tensor], what: str) -> None:
        """Raise if tensors differ between the processes: the leader compares their sums."""
        sums = torch.stack([tensor.double().sum() for tensor in tensors]).cpu()
        all_sums = self.gather(sums[None])
        if differing := [str(rank) for rank, other in enumerate(all_sums) if not torch.equal(other, all_sums[0])]:
            raise MessiError(
                f"{what} of process {', '.join(differing)} of {self.size} differ from those of process 0: the machines "
                "compute different results; use machines with the same hardware and the same versions."
            )


def _is_about_another(error: BaseException) -> bool:
    """Return whether an operation failed because another process has died."""
    return isinstance(error, RuntimeError) and (isinstance(error, distributed.DistError) or "gloo" in str(error))


def tell(processes: Processes | None, what: Any) -> None:
    """Give something to the other processes, if there are any."""
    if processes:
        processes.share(what)


_joined: list[Processes] = []


def join() -> Processes | None:
    """Join the group that this process was started for, once; None if it was started alone."""
    if _joined or not launched():
        return _joined[0] if _joined else None
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank() % torch.cuda.device_count())
    try:
        common, rank, size = next(rendezvous("env://", timeout=START))
        store = PrefixStore(f"messi/{attempt()}", common)  # torchrun may keep the store when it starts again
        _meet_all(store, rank, size)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        own, place = os.environ["RANK"], f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = str(error).partition("\n")[0]
        raise MessiError(f"Process {own} could not join the others at {place}: {reason}") from error
    _joined.append(Processes(rank, size, Heartbeat(rank, size)))
    atexit.register(leave)  # a thread of the group that outlives the interpreter's end would abort the process
    return _joined[0]


def _meet_all(store: Any, rank: int, size: int) -> None:
    """Wait until every process has started; raise an error that names those that have not."""
    store.set(_started(rank), "")
    try:
        store.wait([_started(other) for other in range(size)], START)
    except RuntimeError as error:
        missing = [str(other) for other in range(size) if not store.check([_started(other)])]
        raise MessiError(
            f"Process {', '.join(missing)} of {size} has not started within {START.seconds // 60} minutes; start all "
            "of them."
        ) from error


def _started(rank: int) -> str:
    """Return the name under which a process says that it has started."""
    return f"started/{rank}"


def leave() -> None:
    """Leave the group, if this process has joined one."""
    if _joined:
        _joined.clear()
        distributed.destroy_process_group()
