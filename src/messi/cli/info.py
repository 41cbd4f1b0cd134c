"""``messi info``: versions, devices and which code runs on them, for bug reports."""

import tyro

from messi.cli.common.output import Format, print_rows
from messi.core.info import environment
from messi.engine.build import pick_device


def main(arguments: list[str]) -> int:
    """Parse and print."""
    return tyro.cli(info, prog="messi info", args=arguments)


def info(*, format: Format = "table") -> int:  # noqa: A002 (the option's name)
    """Print versions, devices, and which of several implementations is used here.

    Args:
        format: Table, CSV or JSON.

    """
    gpu = pick_device(None).type == "cuda"
    used = {
        "training step": "captured as a CUDA graph" if gpu else "eager",
        "ssi loss": "fused GPU kernels" if gpu else "torch",
        "vision transformers": "fused GPU kernels" if gpu else "timm",
        "augmentation": "fused GPU kernels" if gpu else "torch",
    }
    print_rows([{"what": name, "value": value} for name, value in {**environment(), **used}.items()], format)
    return 0
