"""``messi tune`` before anything runs, and from its own plan file."""

import json
from pathlib import Path

import pytest

from tests.command import messi

TUNE = ("tune", "--data", "two_subsets", "--methods", "erm", "messi ssi_weight=0.1", "--draws", "3", "--dry-run")


def test_a_dry_run_lists_every_draw_and_a_search_has_its_own_folder(tmp_path: Path) -> None:
    printed = messi(*TUNE, "--steps", "7", "--rule", "leave_one_out", cwd=tmp_path)
    assert printed.returncode == 0
    # 3 draws of 2 methods; 4 domains and 6 pairs of them
    assert (
        "60 runs; 2 methods, 3 draws, 1 seed, 4 groups of held-out domains and 6 for cross-validation" in printed.stdout
    )
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "plan.json").write_text(json.dumps({"name": "domain_growth"}))
    printed = messi(*TUNE, "--out", tmp_path)
    assert (printed.returncode, printed.stderr.count("\n")) == (2, 1)
    assert "contains the plan of 'domain_growth', not of 'tune'" in printed.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--search", "ssi_weight=1..0.1"), "--search ssi_weight=1..0.1 is an empty range"),
        (("--search", "ssi_wieght=1,2"), "There is no hyper-parameter named 'ssi_wieght'; available: "),
        (("--hold-out", "5"), "--hold-out 5 must be at least 2 and at most the number of domains, which is 4."),
        (("--target", "c1"), "There is no domain named 'c1'"),
        (("--methods", "erm ssi_weight=1"), "ssi_weight"),
        (("--methods", "erm", "erm"), "Every method must differ from the others in its name or settings"),
        (("--halving", "--rule", "oracle"), "omit --halving or --rule oracle"),
    ],
)
def test_a_search_that_cannot_be_done_is_one_sentence(options: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    printed = messi(*TUNE, *options, cwd=tmp_path)
    assert (printed.returncode, printed.stdout, printed.stderr.count("\n")) == (2, "", 1)
    assert sentence in printed.stderr
