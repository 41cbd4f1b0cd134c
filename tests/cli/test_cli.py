"""The commands as a user runs them, on real files."""

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
from PIL import Image
from safetensors.torch import save_file

from tests.command import messi

MakeFolder = Callable[..., Path]
QUICK = ("--steps", "8", "--evaluate-every", "4", "--batch-per-domain", "4", "--device", "cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MESSI run on a folder of pictures whose two classes are red and blue, in three brightnesses."""
    root = tmp_path_factory.mktemp("trained")
    for domain, level in (("bright", 250), ("dim", 150), ("dark room", 90)):
        for label, channel in (("blue", 2), ("red", 0)):
            folder = root / "data" / domain / label
            folder.mkdir(parents=True)
            for i in range(12):
                color = tuple(level - 2 * i if c == channel else 20 for c in range(3))
                Image.new("RGB", (30 + i, 30), color).save(folder / f"{i}.jpg")
    options = ("--backbone", "tiny_cnn", "--augmentation", "none", "--steps", "60", "--evaluate-every", "30")
    done = messi(
        "train",
        "--data",
        "data",
        "--target",
        "dark room",
        *options,
        "--out",
        "run",
        cwd=root,
        MESSI_HOME=str(root / "home"),
    )
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    return root


def test_training_on_a_folder_leaves_records_model_result_report_and_tensorboard(trained: Path) -> None:
    names = {file.name for file in (trained / "run").iterdir()}
    assert {"run.json", "records.jsonl", "last.safetensors", "model.safetensors", "result.json", "report.html"} <= names
    assert list((trained / "run" / "tensorboard").iterdir())
    assert len(list((trained / "run" / "examples").iterdir())) == 3 * 4
    assert json.loads((trained / "run" / "result.json").read_text())["target"].keys() == {"dark room"}


def test_predict_gives_class_probability_and_expert_weights_and_survives_a_bad_image(
    trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained / "data" / "dark room" / "red", tmp_path / "new")
    (tmp_path / "new" / "3.jpg").write_bytes(b"\xff\xd8 cut")
    done = messi("predict", trained / "run", tmp_path / "new", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert done.returncode == 2
    assert "3.jpg cannot be read" in done.stderr
    assert len(rows) == 11
    for row in rows:
        assert row["class"] == "red"
        assert 0.5 <= float(row["probability"]) <= 1
        assert sum(float(row[f"expert{m}"]) for m in range(1, 7)) == pytest.approx(1, abs=1e-5)


def test_predict_looks_into_folders_as_training_does_and_answers_once_for_an_image(
    trained: Path, tmp_path: Path
) -> None:
    """What macOS hides beside an image, hidden folders and folders named like images are no images."""
    shutil.copytree(trained / "data" / "dark room" / "red", tmp_path / "new" / "shots.jpg")
    (tmp_path / "new" / "shots.jpg" / "._0.jpg").write_bytes(b"\0\5\x16\7")
    (tmp_path / "new" / ".trash").mkdir()
    shutil.copy(trained / "data" / "dark room" / "red" / "0.jpg", tmp_path / "new" / ".trash" / "0.jpg")
    twice = tmp_path / "new" / "shots.jpg" / "0.jpg"
    done = messi("predict", trained / "run", tmp_path / "new", twice, twice, "--format", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    images = [Path(row["image"]).name for row in csv.DictReader(io.StringIO(done.stdout))]
    assert sorted(images) == sorted(f"{i}.jpg" for i in range(12))


def test_predict_follows_links_to_folders_as_training_does(trained: Path, tmp_path: Path) -> None:
    """Two names of one folder are two, as they are domains or classes in training; a link that leads back is passed."""
    shutil.copytree(trained / "data" / "dark room" / "red", tmp_path / "elsewhere" / "red")
    for link, folder in (("new/one", "elsewhere"), ("new/two", "elsewhere/red"), ("elsewhere/back", "new")):
        (tmp_path / link).parent.mkdir(exist_ok=True)
        (tmp_path / link).symlink_to(tmp_path / folder)
    done = messi("predict", trained / "run", "new", "--format", "csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    images = [row["image"] for row in csv.DictReader(io.StringIO(done.stdout))]
    assert sorted(images) == sorted(f"new/{place}/{i}.jpg" for place in ("one/red", "two") for i in range(12))


def test_predict_prints_json_and_takes_a_model_file(trained: Path) -> None:
    image = trained / "data" / "bright" / "blue" / "0.jpg"
    done = messi("predict", trained / "run" / "model.safetensors", image, "--format", "json")
    (answer,) = json.loads(done.stdout)
    assert (done.returncode, answer["class"], answer["image"]) == (0, "blue", str(image))


def test_evaluate_repeats_what_the_run_measured(trained: Path) -> None:
    done = messi("evaluate", "run", "--format", "json", cwd=trained)
    measured = {row["domain"]: row["accuracy"] for row in json.loads(done.stdout)}
    result = json.loads((trained / "run" / "result.json").read_text())
    assert measured == {**result["source_val"], **result["target"]}


def test_evaluate_on_other_data_matches_classes_by_name(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "data" / "dim" / "red", tmp_path / "other" / "new place" / "red")
    done = messi("evaluate", trained / "run", "--data", tmp_path / "other", "--format", "json")
    rows = json.loads(done.stdout)
    found = [(row["role"], row["domain"], row["n"], row["accuracy"]) for row in rows]
    assert found == [("train", "new place", 10, 1.0), ("source_val", "new place", 2, 1.0)], "it was trained on"
    assert "The run has seen 12 of these 12 examples: 10 as train, 2 as source_val." in done.stderr
    (tmp_path / "other" / "new place" / "red").rename(tmp_path / "other" / "new place" / "rde")
    done = messi("evaluate", trained / "run", "--data", tmp_path / "other")
    assert done.returncode == 2
    assert "Did you mean 'red'?" in done.stderr


def test_evaluate_takes_the_options_of_other_data(trained: Path, tmp_path: Path) -> None:
    """The columns of a table, and what to do with damaged images; accuracy is that of what predict says."""
    shutil.copytree(trained / "data" / "dim", tmp_path / "dim")
    (tmp_path / "dim" / "red" / "12.jpg").write_bytes(b"")
    answered = messi("predict", trained / "run", tmp_path / "dim", "--format", "csv")
    said = {Path(row["image"]): row["class"] for row in csv.DictReader(io.StringIO(answered.stdout))}
    files = sorted((tmp_path / "dim").rglob("*.jpg"))
    label = {file: "red" if i % 3 else "blue" for i, file in enumerate(files)}
    lines = [f"{file},{label[file]},here" for file in files]
    (tmp_path / "table.csv").write_text("\n".join(["file,colour,place", *lines]))
    columns = ("--path-column", "file", "--label-column", "colour", "--domain-column", "place")
    options = ("--data", tmp_path / "table.csv", *columns, "--damaged", "leave_out")
    done = messi("evaluate", trained / "run", *options, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    right = sum(said[file] == label[file] for file in said)
    assert [(row["role"], row["domain"], row["n"]) for row in rows] == [
        ("train", "here", 20),
        ("source_val", "here", 4),
    ]
    assert sum(row["accuracy"] * row["n"] for row in rows) == pytest.approx(right)
    assert 0 < right < len(said) == 24


def test_evaluate_with_renamed_data_follows_its_own_advice_to_the_same_numbers(trained: Path, tmp_path: Path) -> None:
    """Data named without --data is looked for where the command is called."""
    asked = messi("evaluate", trained / "run", "--format", "csv", cwd=tmp_path)
    assert asked.returncode == 2
    assert (
        "was trained on data, which is not there; if the data was moved or renamed, name its new place" in asked.stderr
    )
    shutil.copytree(trained / "data", tmp_path / "renamed")
    done = messi("evaluate", trained / "run", "--data", "renamed", "--format", "csv", cwd=tmp_path)
    before = messi("evaluate", "run", "--format", "csv", cwd=trained)
    assert (done.returncode, done.stdout, done.stderr) == (0, before.stdout, before.stderr)
    assert ",dark room," in done.stdout


def test_training_on_renamed_data_says_that_the_run_is_finished(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=4)
    options = ("--target", "photo", "--algorithm", "erm", "--backbone", "tiny_cnn", *QUICK)
    assert messi("train", "--data", root, *options, cwd=tmp_path).returncode == 0
    root.rename(tmp_path / "renamed")
    for out in ((), ("--out", next((tmp_path / "runs").iterdir()))):
        done = messi("train", "--data", "renamed", *options, *out, cwd=tmp_path)
        assert (done.returncode, "already finished; nothing was done" in done.stdout) == (0, True), done.stderr
        assert ("Using the run runs/" in done.stderr) == (not out)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_the_result_of_a_finished_run_is_not_given_for_data_that_has_changed(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
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


def test_the_page_of_runs_in_turn_is_named_like_the_data(make_folder: MakeFolder, tmp_path: Path) -> None:
    """So that data in another folder does not overwrite it; a folder's name may hold a dot."""
    root = make_folder(images=3)
    domains = sorted(folder.name for folder in root.iterdir())
    shutil.copytree(root, tmp_path / "scans.v2")
    options = ("--algorithm", "erm", "--backbone", "tiny_cnn", *QUICK)
    done = messi("train", "--data", "scans.v2", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "runs" / "scans.v2_erm_seed0.html"
    assert f"report  {page.relative_to(tmp_path)}" in done.stdout
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == len(domains)


def test_whatever_domains_are_called_their_runs_stay_in_the_folder_that_was_named(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
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
    """The names and shapes of timm's own state dict, as safetensors; a file of another backbone is refused."""
    weights = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_vit", num_classes=10).state_dict(), weights)
    data = make_folder(images=4)
    common = ("train", "--data", data, "--target", "photo", "--weights", weights, *QUICK)
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
        "unknown backbone": ((*folder, "--backbone", "deit_tiny_patch16_223"), "Did you mean 'deit_tiny_patch16_224'?"),
        "negative weight": ((*folder, "--ssi-weight", "-1"), "ssi_weight must be at least 0, but is -1.0."),
        "no steps": ((*folder, "--steps", "0"), "steps must be at least 1, but is 0."),
        "unknown device": ((*folder, "--device", "abacus"), "There is no device 'abacus'"),
        "useless device": ((*folder, "--backbone", "tiny_cnn", "--device", "mps"), "There is no device 'mps'"),
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
        ("photo/across/", "photo/across has no images"),
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
    done = messi("train", "--data", "two_subsets", "--ssi-wieght", "1")
    assert done.returncode == 2
    assert "--ssi-weight" in done.stderr


def test_help_shows_every_setting_with_its_meaning() -> None:
    text = messi("train", "--help").stdout
    for option, meaning in (
        ("--target", "Domains to hold out"),
        ("--ssi-weight", "Weight of the subset-conditioned invariance term"),
        ("--backbone", "A timm model"),
        ("--steps", "Number of training steps"),
        ("--order", "row-major"),
    ):
        assert option in text
        assert meaning in " ".join(text.replace("│", " ").split())
    assert "--ssi-weight" not in messi("train", "--algorithm", "erm", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("list", "algorithms"), ("messi", "erm", "ssi_weight", "0.01", "10^U(-3, -1)")),
        (("list", "algorithms", "c*"), ("coral", "cdann", "gamma")),
        (("list", "datasets"), ("folder", "rotated_colored_mnist", "two_subsets")),
        (("list", "backbones", "deit_t*"), ("deit_tiny_patch16_224",)),
        (("info",), ("torch", "python", "gpu")),
        (("--help",), ("train", "predict", "report")),
    ],
)
def test_list_and_info_show_what_there_is(arguments: tuple[str, ...], expected: tuple[str, ...]) -> None:
    done = messi(*arguments)
    assert done.returncode == 0
    assert all(word in done.stdout for word in expected)


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = [sys.executable, "-m", "messi", "list", "backbones"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_an_unknown_command_gets_a_hint() -> None:
    done = messi("trian")
    assert done.returncode == 2
    assert "Did you mean 'train'?" in done.stderr


def test_report_compares_runs_on_one_page(trained: Path, tmp_path: Path) -> None:
    done = messi("report", trained / "run", "--out", tmp_path / "page.html")
    assert done.returncode == 0
    assert "dark room" in (tmp_path / "page.html").read_text()
    done = messi("report", tmp_path, "--out", tmp_path / "other.html")
    assert done.returncode == 2
    assert not (tmp_path / "other.html").exists()
