"""``messi compare`` from a folder of images to the final model, as a new user would."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import messi
from messi.cli.main import main
from messi.core.rundir import RunDir

QUICK = ("--backbone", "tiny_cnn", "--augmentation", "none", "--steps", "6", "--evaluate-every", "3")
COMPARE = (
    "compare",
    "--methods",
    "erm",
    "coral",
    *QUICK,
    "--batch-per-domain",
    "8",
    "--seeds",
    "2",
    "--devices",
    "cpu",
)


def test_from_a_folder_to_the_final_model(make_folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    images = make_folder(images=8)
    command = [*COMPARE, "--data", str(images), "--final"]
    assert main(command) == 0
    plan, printed = Path("compare/images"), capsys.readouterr().out
    assert printed.startswith("runs to do: 12, 1 at a time on cpu")
    for text in ("## Recommendation", "Accuracy to expect on a new domain", "Not distinguishable", "| Method |"):
        assert text in printed
    file = plan / "final" / "model.safetensors"
    assert f"model   {file}" in printed
    model = messi.load(file)
    expected = model.expected_accuracy
    assert expected is not None
    assert model.description.sources == ("paint", "photo", "sketch")
    assert (expected.domains, expected.seeds) == (3, 2)

    # The expected accuracy by hand, from the results of the recommended method's runs.
    method = str(model.description.config["algorithm"]["name"])
    found = [json.loads(one.read_text())["target"] for one in plan.glob(f"runs/{method}_*/result.json")]
    by_domain = {d: sum(one[d] for one in found if d in one) / 2 for d in ("paint", "photo", "sketch")}
    assert expected.mean == pytest.approx(sum(by_domain.values()) / 3)
    assert (expected.lowest, expected.highest) == pytest.approx((min(by_domain.values()), max(by_domain.values())))

    assert main(["predict", str(plan / "final"), str(images / "photo" / "across")]) == 0
    assert f"expected accuracy on a new domain: {expected}" in capsys.readouterr().err
    page = (plan / "report.html").read_text()
    assert all(text in page for text in ("messi compare", str(expected), "final/model.safetensors"))

    # Nothing is trained again, and the model has the same bits.
    before = {path: path.stat().st_mtime_ns for path in plan.glob("**/runs/*/result.json")}
    weights = file.read_bytes()
    assert main(["compare", "--plan", str(plan / "plan.json"), "--final", "--devices", "cpu"]) == 0
    assert "12 of 12 runs are already finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in plan.glob("**/runs/*/result.json")} == before
    assert file.read_bytes() == weights
    assert main(["verify", str(plan)]) == 0

    # A run that is interrupted is resumed with the same result; the report works meanwhile.
    lost = RunDir(next(plan.glob("runs/erm_*_seed1_*")))
    result = lost.result.read_bytes()
    lost.result.unlink()
    assert main(["report", str(plan)]) == 0
    assert "None yet: 1 of 12 runs are not finished" in (plan / "report.html").read_text()
    assert main(command) == 0
    assert lost.result.read_bytes() == result


def test_several_data_sets_cannot_end_in_one_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, "--data", "two_subsets", "rotated_mnist", "--final"]) == 2
    assert "--final trains one model" in capsys.readouterr().err
    assert not Path("compare").exists()


def test_defaults_follow_the_data_and_options_apply_to_all_methods(capsys: pytest.CaptureFixture[str]) -> None:
    """Both have the protocol's batch size; the number of steps is given, and one method overrides it."""
    options = ("--data", "two_subsets", "rotated_mnist", "--steps", "7", "--hold-out", "2", "--seeds", "1")
    assert main(["compare", *options, "--methods", "erm", "erm steps=8", "--dry-run"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("erm")]
    assert [(line[1], line[-2]) for line in lines if line[1] == "steps=8"] == [("steps=8", "8")] * 4
    assert [(line[1], line[-3], line[-2]) for line in lines if line[1] != "steps=8"] == [
        *[("two_subsets", "identity", "7")] * 2,
        *[("rotated_mnist", "small_cnn", "7")] * 2,
    ]
