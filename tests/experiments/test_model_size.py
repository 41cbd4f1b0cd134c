"""Parameters counted from the networks."""

from pathlib import Path

import pytest

from messi.algorithms.messi import MESSI
from messi.cli.main import main
from messi.experiments.common.paper_numbers import MODEL_SIZE
from messi.experiments.model_size import COUNTED, ModelSize, count

DEIT_S, DEIT_TI = 21_665_664, 5_524_416
"""timm's DeiT without a classifier."""


@pytest.mark.parametrize(
    ("name", "encoder", "head"),
    [
        ("ERM", 23_508_032, 0),
        ("LFME", 23_508_032, 0),
        # Five more copies of two MLPs 384-1536-384 and two cosine routers.
        ("GMoE", DEIT_S, None),
        ("MESSI-S", DEIT_S, 6 * (2 * 384 * 1536 + 1536 + 384) + 6 * 385),
        ("MESSI-Ti", DEIT_TI, 6 * (2 * 192 * 768 + 768 + 192) + 6 * 193),
    ],
)
def test_counts(name: str, encoder: int, head: int | None) -> None:
    size = count(COUNTED[name].algorithm, COUNTED[name].backbone)
    assert size.encoder == encoder
    assert head is None or size.head == head


def test_the_size_of_messi_follows_the_width_of_its_experts() -> None:
    narrow = count(MESSI.Config(expert_ratio=0.5, load_rate=0.01), COUNTED["MESSI-Ti"].backbone)
    experts, router, load_bias = 6 * (2 * 192 * 96 + 96 + 192), 6 * 193, 6
    assert (narrow.encoder, narrow.head) == (DEIT_TI, experts + router + load_bias)


def test_sizes_match_the_paper_up_to_the_explained_differences() -> None:
    totals = {name: count(row.algorithm, row.backbone).total / 1e6 for name, row in COUNTED.items()}
    assert totals["GMoE"] == pytest.approx(33.80, abs=0.15)
    assert totals["MESSI-S"] == pytest.approx(28.79, abs=0.04)
    # The paper's DeiT-Ti and ResNet-50 have ImageNet's classifier: 192 and 2,048 features, 1,000 classes.
    assert totals["MESSI-Ti"] + 0.193 == pytest.approx(7.48, abs=0.02)
    assert totals["ERM"] + 2.049 == pytest.approx(25.60, abs=0.05)


def test_every_row_of_the_paper_is_counted_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {name for name, _ in MODEL_SIZE} <= set(COUNTED)
    assert ModelSize().runs() == []
    assert main(["reproduce", "model_size", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert (
        "| MESSI-S | DeiT-S/16 | 21.67 | 7.09 | 28.76 |\n"
        "| ↳ paper |  | 21.70 (\u22120.03) | 7.09 (0.00) | 28.79 (\u22120.03) |"
    ) in told
    assert "ResNet-50 has 25.56 and DeiT-Ti/16 has 5.72 million" in told
    (caption,) = [line for line in told.splitlines() if line.startswith("Millions of parameters")]
    for absent in ("Seed", "seeds", "±", "Protocol", "**"):
        assert absent not in caption
    written = {file.name for file in (tmp_path / "tables").iterdir()}
    assert written == {"README.md", *(f"model_size.{ending}" for ending in ("md", "csv", "tex", "html"))}
