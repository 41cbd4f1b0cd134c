"""A model file may come from anybody: it is read, and never makes messi run code."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from messi.algorithms.messi import MESSI
from messi.cli.main import main
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.run import run
from messi.evaluation.model import load
from messi.models.encoder import EncoderConfig
from messi.models.uninitialised import uninitialised

OWN = """
from dataclasses import dataclass
from pathlib import Path
from messi.algorithms.messi import MESSI

Path(__file__).with_name("was_run").touch()

class {name}(MESSI):
    '''A method of one's own.'''

    @dataclass(frozen=True, kw_only=True)
    class Config(MESSI.Config):
        '''Its own.'''
"""


@pytest.fixture
def trained(tmp_path: Path) -> RunDir:
    config = RunConfig(
        data=TwoSubsets(per_domain=30),
        target=("b2",),
        algorithm=MESSI.Config(num_experts=2),
        training=TrainingConfig(steps=4, evaluate_every=2, batch_per_domain=4),
    )
    return RunDir(run(config, out=tmp_path / "run", device="cpu").path)


def forged(folder: RunDir, path: Path, **changes: Any) -> Path:
    """Write a model file with changed values and a matching checksum."""
    tensors, description = read_tensors(folder.model)
    for key, value in changes.items():
        part = description
        *parents, last = key.split("__")
        for name in parents:
            part = part[name]
        part[last] = value
    write_tensors(path, tensors, description)
    return path


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("part", ["algorithm", "data"])
def test_a_file_named_in_a_model_is_not_run(part: str, trained: RunDir, tmp_path: Path, *, absolute: bool) -> None:
    (tmp_path / "evil.py").write_text(OWN.format(name="Evil"))
    named = str(tmp_path / "evil.py") if absolute else "evil.py"
    file = forged(trained, tmp_path / "model.safetensors", **{f"config__{part}__name": named})
    if part == "algorithm":
        newer = forged(trained, tmp_path / "newer.safetensors", config__algorithm__name=named, version="9.0.0")
        with pytest.raises(MessiError, match=r"^The algorithm 'evil' .* is only run if you name it"):
            load(newer)
        with pytest.raises(MessiError, match=r"evil.* is only run if you name it: with --algorithm FILE"):
            load(file)
    evaluated = forged(trained, trained.model, **{f"config__{part}__name": named})
    assert main(["predict", str(file), "x.png"]) == 2
    assert main(["evaluate", str(evaluated.parent)]) == 2
    assert main(["report", str(evaluated.parent), "--out", str(tmp_path / "page.html")]) in (0, 2)
    assert not (tmp_path / "was_run").exists()


def test_a_users_own_method_is_run_if_it_is_named_and_a_change_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "mine.py"
    own.write_text(OWN.format(name="Mine"))
    config = ["--steps", "4", "--evaluate-every", "2", "--target", "b2", "--out", str(tmp_path / "run")]
    assert main(["train", "--data", "two_subsets", "--algorithm", str(own), *config]) == 0
    with pytest.raises(MessiError, match="is only run if you name it"):
        load(tmp_path / "run")
    with pytest.raises(MessiError, match="is only run if you name it"):
        load(tmp_path / "run", algorithm=tmp_path / "other.py")
    assert load(tmp_path / "run", algorithm=own).classes == ("-1", "+1")
    assert {r.role for r in evaluate_run(tmp_path / "run", algorithm=own)} == {"source_val", "target"}
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert main(["evaluate", str(tmp_path / "run"), "--algorithm", str(own)]) == 0
    assert "has changed since" not in caplog.text
    own.write_text(own.read_text() + "# another version\n")
    load(tmp_path / "run", algorithm=own)
    assert "mine.py has changed since this was trained" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"task": None},
        {"task": []},
        {"task__num_classes": "two"},
        {"task__num_classes": -1},
        {"spec": {"shape": [5], "mean": None, "std": []}},
        {"spec__shape": []},
        {"spec__shape": [7]},
        {"classes": ["a"]},
        {"classes": "ab"},
        {"step": None},
        {"config__encoder": []},
        {"config__encoder__backbone": ["mlp"]},
        {"config__encoder__backbone": "vit_giant_patch14_224"},
        {"config__algorithm__name": ["messi"]},
        {"config__algorithm__name": "os"},
        {"config__algorithm__name": "../../evil"},
        {"config__algorithm__num_experts": 10**9},
        {"config__algorithm": None},
        {"config": {}},
        {"version": {}},
    ],
    ids=str,
)
def test_wrong_values_with_a_matching_checksum_give_one_sentence(
    changes: dict[str, Any], trained: RunDir, tmp_path: Path
) -> None:
    file = forged(trained, tmp_path / "forged.safetensors", **changes)
    start = time.monotonic()
    with pytest.raises(MessiError) as caught:
        load(file)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 10, "nothing large is made before it is refused"


def test_weights_that_are_not_finite_give_a_sentence_instead_of_nan(trained: RunDir, tmp_path: Path) -> None:
    tensors, description = read_tensors(trained.model)
    next(tensor for name, tensor in tensors.items() if name.endswith("bias"))[0] = torch.nan
    write_tensors(tmp_path / "nan.safetensors", tensors, description)
    model = load(tmp_path / "nan.safetensors")
    with pytest.raises(MessiError, match=r"prediction for input 1 of 3 is not a number: the weights or the input have"):
        model.predict(torch.zeros(3, *model.spec.shape))


def test_a_network_from_a_file_is_built_without_drawing_its_parameters() -> None:
    """Its buffers are computed, and trainable parameters stay trainable."""
    config = EncoderConfig(backbone="resnet18", pretrained=False)
    torch.manual_seed(0)
    drawn = config.build((3, 32, 32))
    before = torch.get_rng_state()
    with uninitialised():
        empty = config.build((3, 32, 32))
    assert torch.equal(torch.get_rng_state(), before), "nothing was drawn"
    assert [(n, p.shape, p.requires_grad) for n, p in empty.named_parameters()] == [
        (n, p.shape, p.requires_grad) for n, p in drawn.named_parameters()
    ]
    for (name, ours), (_, theirs) in zip(empty.named_buffers(), drawn.named_buffers(), strict=True):
        assert torch.equal(ours, theirs), name
    empty.load_state_dict(drawn.state_dict())
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(empty.eval()(images), drawn.eval()(images))
    torch.manual_seed(0)
    again = config.build((3, 32, 32))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), drawn.parameters(), strict=True)), "as before"
