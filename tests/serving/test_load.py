"""The load test, small: no answer is lost or wrong, and memory stays flat."""

import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_serve.py"


def test_many_clients_get_their_own_answers(image_run: Path) -> None:
    files = [str(file) for file in sorted((image_run / "images" / "photo").rglob("*.png"))]
    words = [sys.executable, str(BENCHMARK), str(image_run / "run"), *files, "--clients", "40", "--seconds", "3"]
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["lost"], found["wrong"], found["problems"]) == (0, 0, {})
    assert found["answered"] == found["sent"] > 40
    assert found["memory in MB"]["second half"] - found["memory in MB"]["first half"] < 30
