"""Every kernel compiles, and fits into shared memory, for GPUs that this machine does not have.

One takes 45 s. CI compiles for the least memory and for what we run on, the rest is nightly.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KIB = 1024


@pytest.mark.parametrize(
    ("capability", "shared"),
    [
        (80, 99),  # A100; it has 163, but the same code runs on an RTX 3090 (86) and an L4 (89), which have 99
        (90, 227),  # H100, H200
        pytest.param(100, 227, marks=pytest.mark.nightly),  # B200
        pytest.param(120, 99, marks=pytest.mark.nightly),  # RTX 5090
    ],
)
def test_every_kernel_compiles_and_fits_into_shared_memory(capability: int, shared: int, tmp_path: Path) -> None:
    program = Path(__file__).with_name("compile_kernels.py")
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, program, str(capability)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    used = json.loads(done.stdout)
    assert len(used) > 20
    assert {name: bytes_ for name, bytes_ in used.items() if bytes_ > shared * KIB} == {}
