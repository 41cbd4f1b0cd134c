"""The study of features: its plan over files of a folder, logistic regression on the data of a run, the differences."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from messi.cli.main import main
from messi.engine.run import run
from messi.experiments.feature_defaults import LOGISTIC, LOGISTIC_REGRESSION, FeatureDefaults
from messi.reports.table import Table
from messi.studies.common.measuring import read_measured
from messi.studies.common.results import Results
from messi.sweeps.plan import Label, Plan
from tests.studies.made_runs import cell_of, made_results, reported

TARGETS = ("a", "b", "c")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two sets of three domains in which a class follows from one feature, up to noise."""
    random = np.random.default_rng(0)
    for number, name in enumerate(("large", "little")):
        features = random.normal(size=(60 * (2 - number), 4)).astype("float32")
        labels = (features[:, 0] + 0.3 * random.normal(size=len(features)) > 0).astype(int)
        domains = np.array(TARGETS)[np.arange(len(features)) % 3]
        np.savez(tmp_path / f"{name}.npz", inputs=1000 * features + 5, labels=labels, domains=domains)
    return tmp_path


def test_every_domain_of_every_set_is_held_out_with_the_defaults(folder: Path) -> None:
    runs = FeatureDefaults(path=str(folder), methods=("messi",), seeds=2).runs()
    assert len(runs) == 2 * 2 * 3 * 2
    assert {run.labels["method"] for run in runs} == {"erm", "messi"}
    for run_ in runs:
        config = run_.config.resolved()
        assert config.target == (run_.labels["target"],)
        assert (config.encoder.backbone, config.deviations()) == ("residual_mlp", {})
    only = FeatureDefaults(path=str(folder), sets=("little",), seeds=1).runs()
    assert {run.labels["data"] for run in only} == {"little"}


def test_logistic_regression_is_scikit_learns_on_the_split_of_the_run(folder: Path) -> None:
    experiment = FeatureDefaults(path=str(folder), sets=("little",), methods=(), scale="small")
    plan = Plan(folder / "plan", experiment.runs())
    for planned in plan.runs:
        run(planned.config, out=plan.path(planned), device="cpu")
    results = Results(plan.outcomes())
    table, _ = reported(experiment, results)
    assert isinstance(table, Table)
    found = read_measured(results, LOGISTIC_REGRESSION)
    assert len(found) == len(TARGETS)
    arrays = np.load(folder / "little.npz")
    best = 0.0
    for target in TARGETS:  # a model of all source data, without validation, is nearly the same
        source = arrays["domains"] != target
        inputs = (arrays["inputs"] - arrays["inputs"][source].mean(0)) / arrays["inputs"][source].std(0)
        model = LogisticRegression(C=1.0).fit(inputs[source], arrays["labels"][source])
        best += model.score(inputs[~source], arrays["labels"][~source]) / len(TARGETS)
    cell = cell_of(table, "little", LOGISTIC)
    assert cell.ours is not None
    assert cell.ours.mean == pytest.approx(100 * best, abs=10)


def test_differences_are_paired_by_target_and_seed(folder: Path, tmp_path: Path) -> None:
    experiment = FeatureDefaults(path=str(folder), sets=("little",), methods=("messi",), seeds=2)

    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        base = 0.5 + 0.1 * TARGETS.index(str(labels["target"]))
        gain = 0.01 * (1 + 2 * int(labels["seed"])) if labels["method"] == "messi" else 0.0
        return {"result": {"source_val": {"a": 0.9}, "target": {"x": base + gain}}}

    _, table = experiment.report(made_results(tmp_path / "plan", experiment, made))
    assert isinstance(table, Table)
    cell = cell_of(table, "to ERM difference", "messi", "little")
    assert cell.ours is not None
    assert cell.ours.mean == pytest.approx(2)
    low = cell_of(table, "to ERM 2.5 %", "messi", "little").ours
    assert low is not None
    assert low.mean < 2
    assert cell_of(table, "to logistic difference", "messi", "little").ours is None, "nothing was measured"


def test_a_folder_without_sets_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "feature_defaults", "--path", str(tmp_path), "--out", str(tmp_path / "plan")]
    assert main(command) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"messi: {tmp_path / 'abalone.npz'} cannot be read: No such file or directory")
    assert not (tmp_path / "plan").exists()
