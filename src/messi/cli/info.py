"""``messi info``: versions, devices and implementations, for bug reports."""

import torch
import tyro

from messi.cli.common.output import Format, print_rows
from messi.core.gpu_kernels import implementation
from messi.core.hardware import hardware_of
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
    rows = {**environment(), **_used_on(pick_device(None))}
    print_rows([{"what": name, "value": value} for name, value in rows.items()], format)
    return 0


def _used_on(device: torch.device) -> dict[str, str]:
    """Return what runs use on a device, and why where it is not the fastest."""
    hardware = hardware_of(device)
    why = hardware.why_no_kernels
    return {
        "device": f"{device} ({hardware.name})" if hardware.name else str(device),
        "training precision": _precision(hardware.precision.training, device),
        "prediction precision": _precision(hardware.precision.prediction, device),
        "training step": f"eager ({why})" if why else "captured as a CUDA graph",
        "image preparation": implementation(device, otherwise="torch on the CPU"),
        "ssi loss": implementation(device, otherwise="torch"),
        **implementations(device),
    }


def _precision(name: str, device: torch.device) -> str:
    if device.type == "cpu":
        reason = "tiny_cnn and features: float32" if name == "bfloat16" else "this CPU has neither AVX512-BF16 nor AMX"
    elif name == "bfloat16":
        return name
    else:
        reason = "bfloat16 is not tested on this GPU" if device.type == "mps" else "this GPU has no bfloat16"
    return f"{name} ({reason})"
