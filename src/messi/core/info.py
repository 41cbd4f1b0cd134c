"""Versions and hardware: for bug reports, and recorded with every result."""

import functools
import os
import platform
import re
from importlib import metadata

_PACKAGES = ("messi-dg", "torch", "torchvision", "timm", "safetensors", "numpy", "pillow")


@functools.cache  # a plan asks for every run, and the answer takes a millisecond
def version() -> str:
    """Return the version of messi."""
    return metadata.version("messi-dg")


def is_newer(other: str) -> bool:
    """Return whether another version of messi, as a file states it, is newer than this one."""
    stated, ours = (list(map(int, re.findall("[0-9]{1,9}", text)[:3])) for text in (other, version()))
    return stated > ours


@functools.cache  # each takes a millisecond, and an estimator asks in every fit
def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in _PACKAGES}


def environment() -> dict[str, str]:
    """Return versions and hardware by name."""
    import torch  # noqa: PLC0415 (slow to import, and only this function needs it)

    from messi.core.hardware import hardware_of, local_devices  # noqa: PLC0415 (imports torch)

    gpus = [name for device in local_devices() if (name := hardware_of(torch.device(device)).name)]
    return {
        **_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cuda": torch.version.cuda or "none",
        **({"rocm": torch.version.hip} if torch.version.hip else {}),
        "gpu": ", ".join(gpus) or "none",
        "cpu_threads": str(torch.get_num_threads()),
    }


def physical_memory() -> int | None:
    """Return the bytes of memory of this machine, or None on a system that does not report them, such as Windows."""
    return _pages("SC_PHYS_PAGES")


def free_memory() -> int | None:
    """Return the bytes of unused memory, or None on a system that does not report them, such as macOS."""
    return _pages("SC_AVPHYS_PAGES")


def _pages(name: str) -> int | None:
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
