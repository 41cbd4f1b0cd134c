"""Decisions by hardware: kernels, precision, devices; for devices that this machine does not have, too."""

import importlib.util
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import torch

from messi.cli.info import info
from messi.core import gpu_kernels, hardware
from messi.core.errors import MessiError
from messi.core.hardware import Hardware, hardware_of, local_devices
from messi.engine.build import pick_device
from messi.sweeps.launchers.local import Local

H200 = Hardware(kind="cuda", name="H200", capability=(9, 0), triton=True, bfloat16=True)
A100 = Hardware(kind="cuda", name="A100", capability=(8, 0), triton=True, bfloat16=True)
T4 = Hardware(kind="cuda", name="T4", capability=(7, 5), triton=True)
WITHOUT_TRITON = Hardware(kind="cuda", name="A100", capability=(8, 0), bfloat16=True)
MI300 = Hardware(kind="cuda", name="MI300X", rocm=True, triton=True, bfloat16=True)
OLD_AMD = Hardware(kind="cuda", name="MI25", rocm=True, triton=True)
APPLE = Hardware(kind="mps", name="Apple GPU")
PROCESSOR = Hardware(kind="cpu")
NEW_PROCESSOR = Hardware(kind="cpu", bfloat16=True)

FLOAT32, FLOAT16, BFLOAT16 = "float32", "float16", "bfloat16"


@pytest.mark.parametrize(
    ("given", "reason", "training", "prediction"),
    [
        (H200, "", BFLOAT16, BFLOAT16),
        (A100, "", BFLOAT16, BFLOAT16),
        (T4, "this GPU has compute capability 7.5, and the kernels require 8.0", FLOAT32, FLOAT16),
        (WITHOUT_TRITON, "Triton is not installed", BFLOAT16, BFLOAT16),
        (MI300, "the kernels are not tested on AMD GPUs", BFLOAT16, BFLOAT16),
        (OLD_AMD, "the kernels are not tested on AMD GPUs", FLOAT32, FLOAT16),
        (APPLE, "the kernels require an NVIDIA GPU", FLOAT32, FLOAT32),
        (PROCESSOR, "no GPU", FLOAT32, FLOAT32),
        (NEW_PROCESSOR, "no GPU", BFLOAT16, BFLOAT16),
    ],
    ids=["H200", "A100", "T4", "no Triton", "AMD", "old AMD", "Apple", "CPU", "new CPU"],
)
def test_the_hardware_decides_about_kernels_and_precision(
    given: Hardware, reason: str, training: str, prediction: str
) -> None:
    assert given.why_no_kernels == reason
    assert (given.precision.training, given.precision.prediction) == (training, prediction)


class Machine:
    """Makes torch report devices that this machine does not have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        hardware_of.cache_clear()

    def has(
        self,
        gpus: int = 0,
        *,
        capability: tuple[int, int] = (8, 0),
        hip: str | None = None,
        mps: bool = False,
        avx512_bf16: bool = False,
        amx: bool = False,
    ) -> None:
        cuda = torch.cuda
        self._patch.setattr(cuda, "device_count", lambda: gpus)
        self._patch.setattr(cuda, "is_available", lambda: gpus > 0)
        self._patch.setattr(cuda, "get_device_name", lambda _: "Fake GPU")
        self._patch.setattr(cuda, "get_device_capability", lambda _: capability)
        self._patch.setattr(hardware, "_has_bfloat16", lambda _: hip is not None or capability >= (8, 0))
        self._patch.setattr(torch.version, "hip", hip)
        self._patch.setattr(torch.backends.mps, "is_available", lambda: mps)
        self._patch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
        self._patch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    yield Machine(monkeypatch)
    hardware_of.cache_clear()


def facts(device: str) -> tuple[object, ...]:
    found = hardware_of(torch.device(device))
    return found.kind, found.capability, found.rocm, found.triton, found.bfloat16


def test_facts_are_read_from_torch_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", Mock(return_value=None))
    machine.has(1, capability=(7, 0))
    assert facts("cuda") == ("cuda", (7, 0), False, False, False)
    machine.has(1, capability=(9, 0))
    assert facts("cuda") == ("cuda", (7, 0), False, False, False)
    hardware_of.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", Mock())
    assert facts("cuda") == ("cuda", (9, 0), False, True, True)
    hardware_of.cache_clear()
    machine.has(1, hip="6.4")
    assert facts("cuda") == ("cuda", None, True, True, True)
    assert facts("mps") == ("mps", None, False, False, False)
    assert facts("cpu") == ("cpu", None, False, False, False)


def test_a_cpu_computes_in_bfloat16_by_its_instruction_set(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(limit: str | None = None, *, avx512_bf16: bool = False, amx: bool = False) -> bool:
        hardware_of.cache_clear()
        if limit is None:
            monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
        else:
            monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        machine.has(avx512_bf16=avx512_bf16, amx=amx)
        return hardware_of(torch.device("cpu")).bfloat16

    assert found("AVX512_CORE_BF16", avx512_bf16=True)
    assert found("default", amx=True)
    assert not found("AVX512_CORE_VNNI", avx512_bf16=True, amx=True)
    assert not found("avx2", avx512_bf16=True)
    assert not found("AVX512_CORE_AMX")
    assert found(avx512_bf16=True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")
    assert not found("", avx512_bf16=True)


def test_the_default_device_is_cuda_then_mps_then_the_cpu(machine: Machine) -> None:
    machine.has(2, mps=True)
    assert (pick_device(None), local_devices()) == (torch.device("cuda"), ["cuda:0", "cuda:1"])
    assert pick_device("mps") == torch.device("mps")
    machine.has(mps=True)
    assert (pick_device(None), local_devices()) == (torch.device("mps"), ["mps"])
    assert Local(devices=("mps", "cpu")).describe(2) == "2 at a time on mps, cpu"
    assert Local().describe(2) == "1 at a time on mps"
    machine.has()
    assert (pick_device(None), local_devices()) == (torch.device("cpu"), ["cpu"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mps", "No Apple GPU (MPS) is available here; use --device cpu."),
        ("cuda", "No CUDA device is available here; use --device cpu."),
        ("xpu", "There is no device 'xpu'; use 'cpu', 'cuda', 'cuda:1' or 'mps'."),
        ("gpu", "There is no device 'gpu'; use 'cpu', 'cuda', 'cuda:1' or 'mps'."),
    ],
)
def test_an_unusable_device_gives_one_sentence(machine: Machine, name: str, sentence: str) -> None:
    machine.has()
    with pytest.raises(MessiError) as error:
        pick_device(name)
    assert str(error.value) == sentence


def test_disabling_the_kernels_wins_over_the_hardware(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", Mock())
    machine.has(1)
    cuda = torch.device("cuda")
    assert gpu_kernels.available(cuda)
    with gpu_kernels.disabled():
        assert not gpu_kernels.available(cuda)
    assert gpu_kernels.available(cuda)
    hardware_of.cache_clear()
    machine.has(1, capability=(7, 5))
    assert not gpu_kernels.available(cuda)


def test_info_says_what_runs_and_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", Mock())

    def printed() -> dict[str, str]:
        hardware_of.cache_clear()
        info(format="csv")
        return dict(line.split(",", 1) for line in capsys.readouterr().out.splitlines())

    machine.has(1, capability=(7, 5))
    why = '"{} (this GPU has compute capability 7.5, and the kernels require 8.0)"'.format
    old = printed()
    assert old["gpu"] == "Fake GPU"
    assert old["device"] == "cuda (Fake GPU)"
    assert old["training precision"] == "float32 (this GPU has no bfloat16)"
    assert old["prediction precision"] == "float16 (this GPU has no bfloat16)"
    assert old["training step"] == why("eager")
    assert old["image preparation"] == why("torch on the CPU")
    assert old["vision transformers"] == why("timm")

    machine.has(1, hip="6.4")
    amd = printed()
    assert (amd["rocm"], amd["training precision"]) == ("6.4", "bfloat16")
    assert amd["ssi loss"] == "torch (the kernels are not tested on AMD GPUs)"

    machine.has(mps=True)
    apple = printed()
    assert (apple["device"], apple["gpu"]) == ("mps (Apple GPU)", "Apple GPU")
    assert apple["training precision"] == "float32 (bfloat16 is not tested on this GPU)"
    assert apple["training step"] == "eager (the kernels require an NVIDIA GPU)"

    machine.has()
    assert printed()["training precision"] == "float32 (this CPU has neither AVX512-BF16 nor AMX)"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "DEFAULT")
    machine.has(amx=True)
    assert printed()["prediction precision"] == "bfloat16 (tiny_cnn and features: float32)"

    machine.has(1, capability=(9, 0))
    new = printed()
    assert new["training step"] == "captured as a CUDA graph"
    assert new["image preparation"] == new["ssi loss"] == new["vision transformers"] == "fused GPU kernels"
    assert new["training precision"] == new["prediction precision"] == "bfloat16"
