"""The first command of the README, complete; it takes about a minute on two cores."""

import json
import os
import subprocess
import sys
from pathlib import Path

from messi.cli.demo import runs
from messi.evaluation.model import load


def test_the_two_runs_differ_only_in_the_method() -> None:
    erm, messi = (run.to_dict() for run in runs())
    assert (erm.pop("algorithm")["name"], messi.pop("algorithm")["name"]) == ("erm", "messi")
    assert erm == messi


def test_the_demo_trains_both_methods_and_writes_table_report_and_models(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "messi", "demo", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "rot0-p0.5" in done.stdout
    page = (tmp_path / "report.html").read_text()
    for name in ("erm", "messi"):
        assert f"{name}-seed0" in done.stdout
        assert name in page
        result = json.loads((tmp_path / f"{name}-seed0" / "result.json").read_text())
        assert result["target"]["rot0-p0.5"] > 0.58, "clearly better than the 50 % of following the colour (n = 500)"
        assert load(tmp_path / f"{name}-seed0").classes == ("digits 5-9", "digits 0-4")
