"""``messi info``: versions, devices and implementations, for bug reports."""

import tyro

from messi.cli.common.output import Format, print_rows
from messi.core.gpu_kernels import implementation
from messi.core.info import environment
from messi.engine.build import pick_device
from messi.models.fused.replace import implementations


def main(arguments: list[str]) -> int:
    """Parse and print."""
    return tyro.cli(info, prog="messi info", args=arguments)


def info(*, format: Format = "table") -> int:  # noqa: A002 (the option's name)
    """Print versions, devices and the implementations that this machine uses.

    Args:
        format: Table, CSV or JSON.

    """
    device = pick_device(None)
    used = {
        "training step": "captured as a CUDA graph" if device.type == "cuda" else "eager",
        "augmentation": implementation(device, otherwise="torch"),
        "ssi loss": implementation(device, otherwise="torch"),
        **implementations(device),
    }
    print_rows([{"what": name, "value": value} for name, value in {**environment(), **used}.items()], format)
    return 0
