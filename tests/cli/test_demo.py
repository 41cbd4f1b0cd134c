"""The first command of the README, with one seed instead of three."""

import json
import os
import subprocess
import sys
from pathlib import Path

from messi.cli.demo import METHODS, comparison
from messi.engine.recipes import RECIPES, default_recipe, recipe_of
from messi.evaluation.model import load


def test_the_demo_compares_the_default_with_the_baseline_and_with_messi() -> None:
    runs = comparison().runs()
    assert len(runs) == 3 * len(METHODS)
    for run in runs:
        assert recipe_of(run.config.resolved()) == run.labels["method"]
        assert run.config.algorithm == RECIPES[str(run.labels["method"])].algorithm
    assert default_recipe(runs[0].config.data, runs[0].config.encoder) in METHODS
    assert {run.labels["target"] for run in runs} == {"rot0-p0.5"}


def test_the_demo_trains_all_recipes_and_writes_tables_report_and_models(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "messi", "demo", "--out", str(tmp_path), "--seeds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "On the held-out domains:" in done.stdout
    assert str(tmp_path / "report.html") in done.stdout
    page = (tmp_path / "report.html").read_text()
    for name in METHODS:
        (run,) = (tmp_path / "runs").glob(f"{name}_rotated*")
        assert name in page
        result = json.loads((run / "result.json").read_text())
        assert result["target"]["rot0-p0.5"] > 0.58, "clearly better than the 50 % of following the colour (n = 500)"
        assert load(run).classes == ("digits 5-9", "digits 0-4")
