"""The model card: what it says, and that its program runs as printed."""

import contextlib
import csv
import io
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from messi.core.batch import Column, InputSpec
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.features import encode, fit_spec
from messi.evaluation.model import load
from messi.evaluation.predict import predict
from messi.serving.export import TOLERANCE, ExportFormat, export
from tests.command import messi

from .saved import CLASSES, save


def run_program(card: Path, **changes: str) -> tuple[str, dict[str, Any]]:
    """Run the program of a card in the current folder; return what it prints and its variables."""
    (program,) = re.findall(r"```python\n(.*?)```", card.read_text(), re.DOTALL)
    for before, after in changes.items():
        assert before in program
        program = program.replace(before, after)
    printed = io.StringIO()
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        exec(compile(program, str(card), "exec"), names)  # noqa: S102 (our own card)
    return printed.getvalue(), names


@pytest.mark.parametrize("to", ["onnx", "torch"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_program_of_a_card_answers_like_messi_predict(to: ExportFormat, channels: int, tmp_path: Path) -> None:
    """On a photograph that is larger than 320 pixels and lies on its side."""
    saved = save(tmp_path / "model.safetensors", "messi", "tiny_cnn", (channels, 28, 28))
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).resize((1500, 1000)).save("photo.jpg", exif=exif)
    exported = export(saved, to=to, out="it's one.onnx" if to == "onnx" else "one.pt2")
    printed, names = run_program(exported.card)
    answers = load(saved).predict(["photo.jpg"])
    label, probability = printed.split()
    assert label == answers.labels[0]
    assert float(probability) == pytest.approx(float(answers.probabilities.max()), abs=TOLERANCE)
    assert np.abs(np.asarray(names["probabilities"]) - answers.probabilities.numpy()).max() < TOLERANCE
    assert np.abs(np.asarray(names["experts"]) - answers.experts.numpy()).max() < TOLERANCE  # type: ignore[union-attr]


def save_table(path: Path, spec: InputSpec) -> Path:
    """Write a model file that takes the columns of a table."""
    save(path, "erm", "mlp", spec.shape)
    tensors, description = read_tensors(path)
    shown = [asdict(column) for column in spec.columns]
    description["spec"] |= {"mean": spec.mean, "std": spec.std, "columns": shown}
    write_tensors(path, tensors, description)
    return path


def test_the_program_of_a_card_encodes_rows_with_categories(tmp_path: Path) -> None:
    values = torch.tensor([[1.0, 0], [2, 1], [torch.nan, 0], [4, torch.nan]], dtype=torch.float64)
    columns = (Column("size"), Column("kind", ("red", "blue")))
    spec = fit_spec(values, torch.arange(4), columns, "standardise")
    saved = save_table(tmp_path / "model.safetensors", spec)
    exported = export(saved, out=tmp_path / "one.onnx")
    model = load(saved)
    for given, cells in (
        ("{'kind': 'blue', 'size': 3}", [3, 1]),
        ("{'kind': 'green', 'size': float('nan')}", [torch.nan, -1]),
        ("{}", [torch.nan, torch.nan]),
    ):
        example = 'row = {column["name"]: None for column in columns}'
        with contextlib.chdir(tmp_path):
            _, names = run_program(exported.card, **{example: f"row = {given}"})
        row = encode(torch.tensor([cells], dtype=torch.float64), spec, spec.columns)
        wanted = predict(model.algorithm, [row]).logits.softmax(-1)
        assert np.abs(names["probabilities"] - wanted.numpy()).max() < TOLERANCE


CSV = """size,kind,member,code
1,red,True,10
,blue,False,2
2.5, red ,TRUE,
-3e1,,,10
NA,n/a,false,7
4,Null,true,2
 7 ,green,nan,nan
"""


def test_the_program_of_a_card_reads_cells_like_messi_predict(tmp_path: Path) -> None:
    """Truth values, whole numbers as floats, blanks, and missing values of every kind."""
    values = torch.tensor([[1.0, 0, 0, 0], [2, 1, 1, 1], [torch.nan, 0, 0, 1], [4, 1, torch.nan, torch.nan]])
    categories = {"kind": ("blue", "red"), "member": ("false", "true"), "code": ("2", "10")}
    columns = (Column("size"), *(Column(name, texts) for name, texts in categories.items()))
    spec = fit_spec(values.double(), torch.arange(4), columns, "standardise")
    saved = save_table(tmp_path / "model.safetensors", spec)
    exported = export(saved, out=tmp_path / "one.onnx")
    with contextlib.chdir(tmp_path):
        _, names = run_program(exported.card)
    parsed, texts = pd.read_csv(io.StringIO(CSV)), pd.DataFrame(csv.DictReader(io.StringIO(CSV)))
    assert {type(row["code"]) for row in parsed.to_dict("records")} == {float}
    assert {type(row["size"]) for row in texts.to_dict("records")} == {str}
    frames = [
        parsed,
        texts,
        parsed.convert_dtypes(),
        parsed[:2].astype({"size": np.float32, "code": int}),
        pd.DataFrame(
            {"size": [1, None], "kind": [None, "red"], "member": [True, "x"], "code": [10, "2"]}, dtype=object
        ),
    ]
    for frame in frames:
        wanted = load(saved).predict(frame).probabilities.numpy()
        rows = np.array([names["encode"](row) for row in frame.to_dict("records")])
        (found,) = names["session"].run(None, {"features": rows})
        assert np.abs(found - wanted).max() < 1e-6
        assert len(np.unique(wanted.round(4), axis=0)) > 1
    for cell, same in (("10.0", "10"), ("-3.", "-3"), (0.1, "0.1"), ("0.10000000000000001", "0.1"), (1e22, "1e+22")):
        assert names["text"](cell) == same
    for code in ("007", "250.00", "1e3", "2.0.1", "None"):
        assert names["text"](code) == code, "it may be a code that differs from the number"
    with pytest.raises(ValueError, match="true"):
        names["encode"]({"size": True})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on three domains of balanced classes, each held out once, and one more with another seed."""
    root = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(90, 3)).astype(np.float32)
    for domain in range(3):
        features[domain::3, 0] -= np.median(features[domain::3, 0])
    np.savez(root / "readings.npz", inputs=features, labels=(features[:, 0] > 0).astype(int), domains=np.arange(90) % 3)
    schedule = ("--steps", "4", "--evaluate-every", "2", "--batch-per-domain", "4", "--device", "cpu")
    for seed in ("0", "1"):
        target = () if seed == "0" else ("--target", "2")
        done = messi(
            "train", "--data", "readings.npz", "--algorithm", "erm", *schedule, "--seed", seed, *target, cwd=root
        )
        assert done.returncode == 0, done.stderr
    return root / "runs"


def test_a_card_has_the_accuracy_on_every_held_out_domain(runs: Path, tmp_path: Path) -> None:
    run = next(path for path in runs.iterdir() if "_0_seed0" in path.name)
    text = export(run, to="torch", out=tmp_path / "one.pt2").card.read_text()
    for domain in "012":
        (other,) = (path for path in runs.iterdir() if f"_{domain}_seed0" in path.name)
        accuracy = json.loads((other / "result.json").read_text())["target"][domain]
        model = "this one" if domain == "0" else "another, trained in the same way without this domain"
        assert f"| `{domain}` | {100 * accuracy:.1f} | {model} |" in text
    assert "| data | `readings.npz` |" in text
    assert "| source domains (trained on) | `1`, `2` |" in text
    assert "selected by source_val" in text
    assert str(runs.parent) not in text


def test_a_card_shows_what_accuracy_hides_only_if_classes_are_unbalanced(runs: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.tile(np.repeat([0, 1], [36, 4]), 3)
    inputs = rng.normal(size=(120, 3)) + labels[:, None]
    domains = np.repeat(["a", "b", "c"], 40)
    np.savez(tmp_path / "rare.npz", inputs=inputs.astype(np.float32), labels=labels, domains=domains)
    schedule = ("--steps", "20", "--evaluate-every", "10", "--batch-per-domain", "8", "--device", "cpu")
    done = messi("train", "--data", "rare.npz", "--algorithm", "erm", *schedule, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {path.name.split("_")[2]: path for path in (tmp_path / "runs").iterdir() if path.is_dir()}
    text = export(found["a"], to="torch", out=tmp_path / "one.pt2").card.read_text()
    assert "| held-out domain | accuracy % | Balanced % | Macro F1 % | Majority % | model |" in text
    for domain, path in found.items():
        result = json.loads((path / "result.json").read_text())
        scores = result["class_scores"]["target"][domain]
        shares = (scores[name] for name in ("balanced_accuracy", "macro_f1", "majority_share"))
        cells = " | ".join(f"{100 * share:.1f}" for share in (result["target"][domain], *shares))
        assert f"| `{domain}` | {cells} | {'this one' if domain == 'a' else 'another'}" in text
    assert "| source domain, validation part | accuracy % | Balanced % | Macro F1 % | Majority % |" in text
    assert "Majority: the share of the most frequent class" in text
    run = next(path for path in runs.iterdir() if "_0_seed0" in path.name)
    balanced = export(run, to="torch", out=tmp_path / "balanced.pt2").card.read_text()
    assert "| held-out domain | accuracy % | model |" in balanced
    assert "Majority" not in balanced


def test_a_card_says_what_is_not_known(runs: Path, tmp_path: Path) -> None:
    run = next(path for path in runs.iterdir() if "_0_seed0" in path.name)
    shutil.copytree(run, tmp_path / "alone")
    alone = export(tmp_path / "alone", to="torch", out=tmp_path / "alone.pt2").card.read_text()
    assert "One held-out domain says little about the next one" in alone
    bare = export(run / "model.safetensors", to="torch", out=tmp_path / "bare.pt2").card.read_text()
    assert "**not known**" in bare


def test_names_cannot_change_the_card(tmp_path: Path) -> None:
    saved = save(tmp_path / "model.safetensors", "erm", "mlp", (5,))
    tensors, description = read_tensors(saved)
    evil = "x` | <script>alert(1)</script>\n# New\n---\nlicense: mit\x1b[31m"
    description["classes"] = [evil, *CLASSES[1:]]
    description["sources"] = [evil, "two", "three"]
    write_tensors(saved, tensors, description)
    text = export(saved, to="torch", out=tmp_path / "one.pt2", licence=evil).card.read_text()
    outside_code = re.sub(r"`[^`\n]*`", "", text.split("---\n", 2)[2])
    assert "<script" not in outside_code
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line.startswith("# ")] == [text.splitlines()[9]]
    assert text.splitlines().count("---") == 2
