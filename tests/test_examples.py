"""The examples run, and a method in a user's own file works like any other or gives a clear error."""

import ast
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from messi.algorithms.common.base import ALGORITHMS, AlgorithmConfig
from messi.cli.main import main
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.engine.config import RunConfig
from messi.evaluation.model import load

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
EXAMPLE = Path(__file__).parents[1] / "examples" / "energy_distance.py"
PRINTED = {
    "embeddings": "accuracy on the dark camera",
    "inspect_routing": "expert3",
    "machine_readings": "press_3",
    "patients_table": "with probability",
    "train_and_predict": "accuracy on the target",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_imports_messi_once(example: Path) -> None:
    text = example.read_text()
    assert len(text.splitlines()) < 60
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert ["messi" for line in map(ast.unparse, imports) if "messi" in line] == ["messi"]


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path != EXAMPLE], ids=lambda path: path.stem)
def test_an_example_runs(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert PRINTED[example.stem] in capsys.readouterr().out


def test_the_energy_distance_is_its_definition() -> None:
    distance = ALGORITHMS.load(str(EXAMPLE)).loss.__globals__["energy_distance"]
    torch.manual_seed(0)
    features, domains = torch.randn(9, 4), torch.tensor([0, 2, 0, 3, 2, 3, 3, 0, 2])
    clouds = [features[domains == d].double() for d in (0, 2, 3)]

    def apart(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        distances: torch.Tensor = (x[:, None] - y[None]).norm(dim=-1)
        return distances.mean()

    pairs = [(clouds[i], clouds[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    expected = torch.stack([2 * apart(x, y) - apart(x, x) - apart(y, y) for x, y in pairs]).mean()
    torch.testing.assert_close(distance(features, domains, 5).double(), expected, rtol=1e-5, atol=1e-6)


def test_it_trains_predicts_and_resumes_like_any_other(
    make_folder: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_folder()
    command = [
        "train", "--data", str(folder), "--target", "paint", "--algorithm", str(EXAMPLE), "--weight", "0.5",
        "--backbone", "tiny_cnn", "--steps", "6", "--batch-per-domain", "4", "--out", str(tmp_path / "run"),
        "--device", "cpu",
    ]  # fmt: skip
    assert main(command) == 0
    config = RunConfig.from_dict(RunDir(tmp_path / "run").read_description().config, files=[EXAMPLE])
    assert config.algorithm.name == str(EXAMPLE)
    assert getattr(config.algorithm, "weight", None) == 0.5
    assert "energy_distance" in RunDir(tmp_path / "run").report.read_text()
    assert len(load(tmp_path / "run", algorithm=EXAMPLE).predict([folder / "paint" / "across" / "0.png"]).labels) == 1
    capsys.readouterr()
    assert main(command) == 0
    assert "already finished" in capsys.readouterr().out


def test_a_changed_file_is_another_config(tmp_path: Path) -> None:
    prints = []
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        mine = tmp_path / version / "energy_distance.py"
        shutil.copy(EXAMPLE, mine)
        config: AlgorithmConfig = ALGORITHMS.config(str(mine))()
        before = config.fingerprint()
        assert AlgorithmConfig.from_dict(config.to_dict(), files=[mine]) == config
        mine.write_text(mine.read_text() + "\n# another version\n")
        prints += [before, config.fingerprint()]
    assert len(set(prints)) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "There is no algorithm file"),
        ("x = 1\n", "must define a class named like the file, such as MyMethod"),
        ("from messi.algorithms.erm import ERM\nclass MyMethod(ERM): pass\n", "must define its own Config in MyMethod"),
        ("import nothing_like_it\n", "cannot be imported .ModuleNotFoundError"),
    ],
)
def test_a_file_that_does_not_work_gives_one_sentence(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "my_method.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(MessiError, match=message):
        ALGORITHMS.config(str(path))
