"""What is installed and on which machine: for bug reports and beside every result."""

import platform
from importlib import metadata

_PACKAGES = ("messi-dg", "torch", "torchvision", "timm", "safetensors", "numpy", "pillow")


def version() -> str:
    """Return the version of messi."""
    return metadata.version("messi-dg")


def environment() -> dict[str, str]:
    """Return versions and hardware by name."""
    import torch  # noqa: PLC0415 (the report reads versions without torch)

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        **{name: metadata.version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cuda": torch.version.cuda or "none",
        "gpu": ", ".join(gpus) or "none",
        "cpu_threads": str(torch.get_num_threads()),
    }
