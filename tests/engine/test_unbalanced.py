"""Runs on data with unbalanced classes: what they record, and the tables made of it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score

import messi
from messi.cli.main import main
from messi.core.records import ClassScores, EvaluationRecord, RoleRecord
from messi.core.rundir import RunDir
from messi.data.datasets.arrays import Arrays
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.run import run

SHARES = {"a": (80, 15, 5), "b": (70, 20, 10), "c": (40, 30, 30)}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Features that separate the classes a little; the classes of domain c are balanced."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(["x", "y", "z"], counts) for counts in SHARES.values()])
    domains = np.repeat(list(SHARES), 100)
    inputs = rng.normal(size=(300, 3)) + 1.5 * (labels[:, None] == np.array(["x", "y", "z"]))
    np.savez(tmp_path / "table.npz", inputs=inputs.astype(np.float32), labels=labels, domains=domains)
    return tmp_path / "table.npz"


def test_a_run_records_the_scores_that_scikit_learn_computes_from_its_predictions(table: Path, tmp_path: Path) -> None:
    config = RunConfig(
        data=Arrays(path=str(table)),
        target=("c",),
        training=TrainingConfig(steps=20, evaluate_every=10, batch_per_domain=8),
    )
    path = run(config, out=tmp_path / "run", device="cpu").path
    result = RunDir(path).read_result()
    assert {role: set(found) for role, found in result.class_scores.items()} == {
        "source_val": {"a", "b"},
        "target": {"c"},
    }, "all domains have them if one is unbalanced"
    data = np.load(table)
    there = data["domains"] == "c"
    answers = messi.load(path).predict(torch.from_numpy(data["inputs"][there])).labels
    truth = data["labels"][there].tolist()
    found = result.class_scores["target"]["c"]
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(truth, answers))
    assert found.macro_f1 == pytest.approx(f1_score(truth, answers, average="macro"))
    assert found.majority_share == 0.4
    assert result.roles["target"].class_scores == found, "the target is one domain"
    records = RunDir(path).read_records()
    assert all(r.class_scores for r in records if isinstance(r, EvaluationRecord | RoleRecord))
    again = {r.domain: r.class_scores for r in evaluate_run(path, device="cpu")}
    assert again == {**result.class_scores["source_val"], "c": found}


def test_a_search_shows_the_mean_scores_of_the_chosen_draws(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--steps", "4", "--evaluate-every", "2", "--batch-per-domain", "8", "--draws", "2", "--devices", "cpu")
    assert main(["tune", "--data", str(table), "--methods", "erm", *options, "--out", "plan"]) == 0
    printed = capsys.readouterr().out
    text = printed[printed.index("## Unbalanced classes on held-out domains") :]
    shown = [float(cell) for cell in text[text.index("| erm |") :].split("\n")[0].split("|")[2:6]]
    table_text = printed[printed.index("| Method | Target | Draw |") :].split("\n")[2:5]
    chosen = {line.split("|")[2].strip(): int(line.split("|")[3]) for line in table_text}
    scores: list[ClassScores] = []
    accuracies: list[float] = []
    for folder in sorted(Path("plan/runs").iterdir()):
        place = RunDir(folder)
        ((domain, accuracy),) = place.read_result().target.items()
        if f"_draw{chosen[domain]}_" in folder.name:
            scores.append(place.read_result().class_scores["target"][domain])
            accuracies.append(accuracy)
    assert len(scores) == 3, sorted(path.name for path in Path("plan/runs").iterdir())
    expected = [
        100 * float(np.mean(values))
        for values in (
            accuracies,
            [one.balanced_accuracy for one in scores],
            [one.macro_f1 for one in scores],
            [0.8, 0.7, 0.4],
        )
    ]
    assert shown == pytest.approx(expected, abs=0.051)
