"""The other processes of a run that a launcher gives several GPUs of a machine."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from messi.core.heartbeat import SUPERVISOR
from messi.core.processes import Processes, join, leave
from messi.core.start_processes import places_of


@contextmanager
def led_by_this(devices: int, request: Mapping[str, Any]) -> Iterator[Processes | None]:
    """Start the processes that take part in a run of this one, which leads them; none for one device.

    ``request`` has the arguments of :func:`messi.sweeps.one_run.do_run`, which the others call as well.
    """
    if devices == 1:
        yield join()  # None, unless this is one of the others
        return
    own, *others = places_of(devices)
    del own[SUPERVISOR]
    threads = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // devices))}
    with ExitStack() as end:
        for place in others:
            child = subprocess.Popen(
                [sys.executable, "-m", "messi.sweeps.follower"],
                env=os.environ | threads | place,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
            end.callback(child.wait)
            end.callback(child.kill)
            assert child.stdin is not None  # noqa: S101 (for the type checker)
            with child.stdin as pipe:
                pickle.dump(dict(request), pipe)
        end.callback(leave)
        for name, value in own.items():
            os.environ[name] = value
            end.callback(os.environ.pop, name)
        yield join()
