"""What a device can do, and what messi therefore does on it: kernels, captured steps, precision.

Every decision is a function of the facts in :class:`Hardware`, so that tests can decide for devices they do not have.
``docs/hardware.md`` has the decisions as a table.
"""

import functools
import importlib.util
import os
from dataclasses import dataclass

import torch

from messi.core.precision import Precision

_LEAST_CAPABILITY = (8, 0)
"""NVIDIA's Ampere: the first with bfloat16 and asynchronous copies to shared memory, which the kernels use."""
_ONEDNN_LIMIT = "ONEDNN_MAX_CPU_ISA"
"""The variable that limits the instruction set of oneDNN, which computes convolutions and matrix products on a CPU."""
_LIMITS_WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The facts about a device that decisions depend on."""

    kind: str
    """The type of the torch device; AMD's GPUs are "cuda", too."""
    name: str = ""
    """As the vendor calls it; empty for a CPU."""
    capability: tuple[int, int] | None = None
    """The compute capability of an NVIDIA GPU."""
    rocm: bool = False
    """Whether torch was built for AMD's GPUs."""
    triton: bool = False
    """Whether Triton is installed, which compiles the kernels."""
    bfloat16: bool = False
    """Whether the device computes in bfloat16 itself, without emulation."""

    @property
    def why_no_kernels(self) -> str:
        """The reason why the kernels cannot run; empty if they can."""
        if self.kind == "cpu":
            return "no GPU"
        if self.kind != "cuda":
            return "the kernels require an NVIDIA GPU"
        if self.rocm:
            return "the kernels are not tested on AMD GPUs"
        if self.capability is None or self.capability < _LEAST_CAPABILITY:
            found, least = (_dotted(one) for one in (self.capability, _LEAST_CAPABILITY))
            return f"this GPU has compute capability {found}, and the kernels require {least}"
        return "" if self.triton else "Triton is not installed"

    @property
    def precision(self) -> Precision:
        """The default precision: bfloat16 on a GPU or CPU that has it.

        Otherwise float32, but float16 for prediction on a GPU. Never float16 for training: its gradients underflow
        unless the loss is scaled by a factor that adapts to overflows, which every method and every checkpoint would
        have to take into account.
        """
        if self.bfloat16 and self.kind != "mps":
            return Precision.stated("bfloat16")
        return Precision(training="float32", prediction="float16" if self.kind == "cuda" else "float32")


@functools.cache
def hardware_of(device: torch.device) -> Hardware:
    """Return the facts about a device of this machine."""
    if device.type == "cpu":
        return Hardware(kind="cpu", bfloat16=_cpu_has_bfloat16())
    if device.type != "cuda":
        return Hardware(kind=device.type, name="Apple GPU" if device.type == "mps" else "")
    rocm = torch.version.hip is not None
    return Hardware(
        kind="cuda",
        name=torch.cuda.get_device_name(device),
        capability=None if rocm else torch.cuda.get_device_capability(device),
        rocm=rocm,
        triton=importlib.util.find_spec("triton") is not None,
        bfloat16=_has_bfloat16(device),
    )


def local_devices() -> list[str]:
    """Return the names of the fastest devices of this machine: all GPUs, or else the CPU."""
    if gpus := torch.cuda.device_count():
        return [f"cuda:{number}" for number in range(gpus)]
    return ["mps"] if torch.backends.mps.is_available() else ["cpu"]


def _has_bfloat16(device: torch.device) -> bool:
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _cpu_has_bfloat16() -> bool:
    """Return whether the CPU multiplies matrices in bfloat16 (AVX512-BF16 or AMX) and oneDNN may use it."""
    limit = os.environ.get(_ONEDNN_LIMIT, "").upper()
    if limit in _LIMITS_WITHOUT_BFLOAT16 or not torch.backends.mkldnn.is_available():
        return False
    # Every CPU with AMX tiles multiplies bfloat16 in them.
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001 (torch >= 2.8)


def _dotted(capability: tuple[int, int] | None) -> str:
    return "unknown" if capability is None else ".".join(map(str, capability))
