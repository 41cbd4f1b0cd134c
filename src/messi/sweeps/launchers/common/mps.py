"""Let processes use one GPU at the same time, through NVIDIA's MPS; without it they take turns."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
# The daemon starts its server with the first client, so only a client shows whether it works.
_PROBE = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
raise SystemExit(int(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)))
"""


@contextmanager
def shared_gpu() -> Iterator[bool]:
    """Let processes started inside the block share a GPU; yield whether they can.

    The block starts a private daemon and stops it at the end; no other work goes through it. A daemon that is already
    in use is kept.
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
