"""``messi train`` as a user runs it, on real files."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
from safetensors.torch import save_file

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.coral import CORAL
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.cli import train
from messi.cli.train import parse
from messi.core.errors import MessiError
from messi.data.datasets.pacs import PACS
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.recipes import RECIPES
from tests.command import messi

MakeFolder = Callable[..., Path]
QUICK = ("--steps", "8", "--evaluate-every", "4", "--batch-per-domain", "4", "--device", "cpu")


def test_training_on_a_folder_leaves_records_model_result_report_and_tensorboard(trained: Path) -> None:
    names = {file.name for file in (trained / "run").iterdir()}
    assert {"run.json", "records.jsonl", "last.safetensors", "model.safetensors", "result.json", "report.html"} <= names
    assert list((trained / "run" / "tensorboard").iterdir())
    assert len(list((trained / "run" / "examples").iterdir())) == 3 * 4
    assert json.loads((trained / "run" / "result.json").read_text())["target"].keys() == {"dark room"}


def test_several_devices_train_in_processes_of_the_same_command(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start(*given: object) -> int:
        started.append(given)
        return 0

    monkeypatch.setattr(train, "run_in_processes", start)
    words = ["--data", str(make_folder(images=4)), "--algorithm", "erm", "--devices", "3", *QUICK]
    assert messi("train", *words).returncode == 0
    assert started == [(["train", *words], 3)]
    assert "devices must be at least 1, but is 0" in messi("train", *words, "--devices", "0").stderr
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    on_gpus = messi("train", *words[:-1], "cuda")
    assert "--devices 3 requires as many GPUs, but this machine has 2; use fewer" in on_gpus.stderr
    assert len(started) == 1


def test_training_on_renamed_data_reports_that_the_run_is_finished(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=4)
    options = ("--target", "photo", "--algorithm", "erm", "--backbone", "tiny_cnn", *QUICK)
    assert messi("train", "--data", root, *options, cwd=tmp_path).returncode == 0
    root.rename(tmp_path / "renamed")
    for out in ((), ("--out", next((tmp_path / "runs").iterdir()))):
        done = messi("train", "--data", "renamed", *options, *out, cwd=tmp_path)
        assert (done.returncode, "already finished; nothing was done" in done.stdout) == (0, True), done.stderr
        assert ("Using the run runs/" in done.stderr) == (not out)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_finished_run_is_refused_if_its_data_has_changed(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=4)
    command = ("train", "--data", root, "--target", "photo", "--algorithm", "erm", "--backbone", "tiny_cnn", *QUICK)
    assert messi(*command, "--out", "run", cwd=tmp_path).returncode == 0
    assert "already finished; nothing was done" in messi(*command, "--out", "run", cwd=tmp_path).stdout
    shutil.copy(root / "paint/across/0.png", root / "sketch/upright/new.png")
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    done = messi(*command, "--out", "run", cwd=tmp_path)
    assert (done.returncode, "%" in done.stdout) == (2, False)
    assert "The data has changed since the run run; train again in another folder with --out" in done.stderr
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


def test_the_page_of_several_targets_is_named_after_the_data(make_folder: MakeFolder, tmp_path: Path) -> None:
    """Data in another folder must not overwrite it; the name of a folder may contain a dot."""
    root = make_folder(images=3)
    domains = sorted(folder.name for folder in root.iterdir())
    shutil.copytree(root, tmp_path / "scans.v2")
    options = ("--algorithm", "erm", "--backbone", "tiny_cnn", *QUICK)
    done = messi("train", "--data", "scans.v2", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "runs" / "scans.v2_erm_seed0.html"
    assert f"report  {page.relative_to(tmp_path)}" in done.stdout
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == len(domains)


def test_runs_stay_inside_the_output_folder_for_any_domain_names(make_folder: MakeFolder, tmp_path: Path) -> None:
    files = sorted(make_folder(images=3).rglob("*.png"))
    names = {"photo": ".", "sketch": "..", "paint": "../a"}
    lines = [f"{file},{file.parent.name},{names[file.parent.parent.name]}" for file in files]
    (tmp_path / "table.csv").write_text("\n".join(["path,label,domain", *lines]))
    options = ("--algorithm", "erm", "--backbone", "tiny_cnn", *QUICK, "--out", "here/out")
    done = messi("train", "--data", "table.csv", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = {path.parent: json.loads(path.read_text())["target"] for path in tmp_path.rglob("run.json")}
    out = tmp_path / "here" / "out"
    assert runs == {out / "-": ["."], out / "--": [".."], out / "..-a": ["../a"]}
    assert [file.name for file in out.parent.iterdir()] == ["out"]


def test_a_pretrained_backbone_starts_from_a_local_file(make_folder: MakeFolder, tmp_path: Path) -> None:
    """The file has the names and shapes of timm's state dict; a file of another backbone is refused."""
    weights = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_vit", num_classes=10).state_dict(), weights)
    data = make_folder(images=4)
    common = ("train", "--data", data, "--recipe", "paper", "--target", "photo", "--weights", weights, *QUICK)
    done = messi(*common, "--backbone", "test_vit", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    refused = messi(*common, "--backbone", "test_resnet", "--out", tmp_path / "other")
    assert refused.returncode == 2
    assert "does not fit the backbone" in refused.stderr
    assert not (tmp_path / "other").exists()
    weights.unlink()  # a trained model does not need it any more
    assert messi("evaluate", tmp_path / "run", "--data", data).returncode == 0
    assert messi("report", tmp_path / "run", "--out", tmp_path / "page.html").returncode == 0


def bad_inputs(tmp_path: Path, root: Path) -> dict[str, tuple[tuple[str | Path, ...], str]]:
    folder = ("--data", root)
    return {
        "missing folder": (("--data", tmp_path / "nowhere"), "There is no folder"),
        "unknown target": ((*folder, "--target", "phto"), "Did you mean 'photo'?"),
        "every domain held out": ((*folder, "--target", "paint", "photo", "sketch"), "leave at least one"),
        "unknown algorithm": ((*folder, "--algorithm", "mesi"), "Did you mean 'messi'?"),
        "unknown recipe": ((*folder, "--recipe", "papr"), "Did you mean 'paper'?"),
        "unknown backbone": ((*folder, "--backbone", "deit_tiny_patch16_223"), "Did you mean 'deit_tiny_patch16_224'?"),
        "negative weight": ((*folder, "--ssi-weight", "-1"), "ssi_weight must be at least 0, but is -1.0."),
        "no steps": ((*folder, "--steps", "0"), "steps must be at least 1, but is 0."),
        "unknown device": ((*folder, "--device", "abacus"), "There is no device 'abacus'"),
        "useless device": (
            (*folder, "--backbone", "tiny_cnn", "--device", "mps"),
            "No Apple GPU (MPS) is available here",
        ),
        "missing weights": ((*folder, "--backbone", "test_vit", "--weights", "none.pt"), "no weights file none.pt"),
        "features for a picture network": (("--data", "two_subsets", "--backbone", "small_cnn"), "takes images"),
    }


@pytest.mark.parametrize("what", bad_inputs(Path(), Path()))
def test_bad_input_gets_one_sentence_and_leaves_nothing(what: str, make_folder: MakeFolder, tmp_path: Path) -> None:
    arguments, sentence = bad_inputs(tmp_path, make_folder(images=2))[what]
    done = messi("train", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["images"]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("photo/across/0.png", "photo/across/0.png cannot be read: it is damaged or not an image"),
        ("photo/across/", "photo/across contains no images"),
        ("photo/", "photo contains no folders"),
    ],
)
def test_damaged_folders_are_named(damage: str, sentence: str, make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=1)
    if damage.endswith("/"):
        shutil.rmtree(root / damage)
        (root / damage).mkdir()
    else:
        (root / damage).write_bytes(b"")
    done = messi("train", "--data", root, "--backbone", "tiny_cnn", "--out", tmp_path / "run")
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "run").exists()


def test_no_second_option_contradicts_the_data(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=1)
    done = messi("train", "--data", root, "--path", tmp_path / "other", cwd=tmp_path)
    assert done.returncode == 2
    assert "--path" in done.stderr
    assert "--path" not in messi("train", "--data", root, "--help").stdout


def test_an_option_with_a_typo_gets_a_hint() -> None:
    done = messi("train", "--data", "pacs", "--ssi-wieght", "1")
    assert done.returncode == 2
    assert "--ssi-weight" in done.stderr


def test_recipe_and_method_determine_the_config() -> None:
    recipe, paper = RECIPES["messi_swad"], RECIPES["paper"]

    def parsed(*options: str) -> RunConfig:
        return parse(["--data", "pacs", *options]).config

    def expected(algorithm: AlgorithmConfig, training: TrainingConfig) -> RunConfig:
        return RunConfig(data=PACS(), algorithm=algorithm, training=training).resolved()

    plain = TrainingConfig()
    assert parsed() == parsed("--recipe", "messi_swad")
    for options in (("--backbone", "tiny_cnn"), ("--no-pretrained",)):
        assert parsed(*options) == parsed("--recipe", "erm_swad", *options)
    assert parsed("--no-pretrained", "--weights", "w.pt") == parsed(
        "--recipe=messi_swad", "--no-pretrained", "--weights=w.pt"
    )
    assert parsed("--recipe", "paper") == expected(paper.algorithm, plain) == expected(MESSI.Config(), plain)
    assert parsed("--recipe=messi_swad") == expected(recipe.algorithm, recipe.training)
    assert parsed("--algorithm", "coral") == expected(CORAL.Config(), plain)
    assert parsed("--algorithm", "messi") == expected(MESSI.Config(), plain)
    assert parsed("--recipe", "messi_swad", "--algorithm", "erm") == expected(ERM.Config(), recipe.training)
    assert parsed("--recipe", "messi_swad", "--algorithm", "messi") == parsed("--recipe", "messi_swad")
    without = dataclasses.replace(recipe.training, averaging="none")
    assert parsed("--recipe", "messi_swad", "--averaging", "none") == expected(recipe.algorithm, without)


def test_options_without_effect_are_named(tmp_path: Path) -> None:
    words = ["--data", "two_subsets", "--target", "b2", "--recipe", "messi_swad", "--out", "run", *QUICK]
    done = messi("train", *words, "--average-from", "0.5", "--diversity-reduction", "mean", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    notes = " ".join((done.stdout + done.stderr).split())
    assert "--average-from has no effect on training, because averaging is 'swad'." in notes
    assert "--diversity-reduction has no effect on training, because diversity_weight is 0." in notes
    assert "--diversity-weight has no" not in notes


def test_a_saved_run_and_a_recipe_exclude_each_other(trained: Path) -> None:
    with pytest.raises(MessiError, match=r"^--recipe cannot be used with --config: .*\.$"):
        parse(["--config", str(trained / "run"), "--recipe", "erm"])
    assert parse(["--config", str(trained / "run")]).config.algorithm == MESSI.Config()


def test_help_shows_every_setting_with_its_meaning() -> None:
    text = messi("train", "--help").stdout
    for option, meaning in (
        ("--target", "Domains to hold out"),
        ("--ssi-weight", "Weight of the subset-conditioned invariance term"),
        ("--backbone", "A timm model"),
        ("--steps", "Number of training steps"),
    ):
        assert option in text
        assert meaning in " ".join(text.replace("│", " ").split())
    of_data = messi("train", "--data", "rotated_colored_mnist", "--algorithm", "erm", "--help").stdout
    assert "--order" in of_data
    assert "row-major" in of_data
    assert "--ssi-weight" not in of_data
    recipe = " ".join(messi("train", "--recipe", "messi_swad", "--help").stdout.replace("│", " ").split())
    assert "other options override them. (default: messi_swad)" in recipe
    stated = RECIPES["messi_swad"].algorithm.to_dict()["sparsity_weight"]
    assert f"Weight of the routing entropy. (default: {stated})" in recipe
