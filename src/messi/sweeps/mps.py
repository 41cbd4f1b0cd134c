"""Processes that share a GPU at the same time; without NVIDIA's MPS they take turns on it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
# Whether a process can work through the daemon is known when one has: its server starts with the first.
_PROBE = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
raise SystemExit(int(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)))
"""


@contextmanager
def shared_gpu() -> Iterator[bool]:
    """Let processes that are started inside the block run on a GPU at once; yield whether they will.

    The daemon is our own, reached through a folder of its own, and ends with the block; nobody else's work goes through
    it. Where one is in use already, that one is kept.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if _PIPES in os.environ or control is None:
        yield _PIPES in os.environ
        return
    with tempfile.TemporaryDirectory(prefix="messi-mps-") as folder:
        environment = {**os.environ, _PIPES: folder, _LOGS: folder}
        if not _succeeds([control, "-d"], environment):
            yield False
            return
        try:
            works = _succeeds([sys.executable, "-S", "-c", _PROBE], environment)
            if works:
                os.environ.update({_PIPES: folder, _LOGS: folder})
            yield works
        finally:
            for name in (_PIPES, _LOGS):
                os.environ.pop(name, None)
            _succeeds([control], environment, "quit\n")


def _succeeds(command: list[str], environment: dict[str, str], text: str = "") -> bool:
    done = subprocess.run(command, env=environment, input=text, text=True, capture_output=True, check=False)  # noqa: S603
    return done.returncode == 0
