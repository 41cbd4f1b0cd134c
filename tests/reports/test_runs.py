"""Reading run folders, and the labels that distinguish runs."""

from pathlib import Path
from typing import Any

import pytest

from messi.core.documents import write_document
from messi.core.errors import MessiError
from messi.reports.runs import read_run, run_labels

from .helpers import Sample


def labels_of(*paths: Path) -> list[str]:
    return run_labels([read_run(path) for path in paths])


def test_labels_name_the_settings_that_distinguish_runs(tmp_path: Path) -> None:
    erm = Sample(algorithm="erm", experts=()).write(tmp_path / "erm")
    ot = Sample(settings={"discrepancy": "ot"}).write(tmp_path / "ot")
    mmd = Sample(settings={"discrepancy": "mmd"}, seed=1).write(tmp_path / "mmd")
    assert labels_of(erm, ot) == ["erm", "messi"]
    assert labels_of(erm, ot, mmd) == ["erm", "messi, seed 0, discrepancy ot", "messi, seed 1, discrepancy mmd"]
    assert labels_of(ot, ot) == ["messi #1", "messi #2"]


def test_labels_are_short_and_omit_usual_settings(tmp_path: Path) -> None:
    usual = {
        "ssi_weight": 0.01,
        "sparsity_weight": 0.02,
        "balance_weight": 0.02,
        "discrepancy": "ot",
        "selector": "routing",
    }
    none = dict.fromkeys(("ssi_weight", "sparsity_weight", "balance_weight"), 0.0)
    methods: list[dict[str, Any]] = [{}, none, {"discrepancy": "mmd"}, {"selector": "global"}]
    paths = [Sample(settings=usual | own).write(tmp_path / f"{n}") for n, own in enumerate(methods)]
    names = ["messi", "messi, ssi_weight 0.0", "messi, discrepancy mmd", "messi, selector global"]
    assert labels_of(*paths) == names
    # The number of seeds does not decide what is usual.
    seeds = [Sample(settings=usual | {"selector": "global"}, seed=s).write(tmp_path / f"seed{s}") for s in range(1, 6)]
    assert labels_of(*paths, *seeds)[:4] == [name.replace("messi", "messi, seed 0") for name in names]


def test_labels_are_different_wherever_configs_are(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [
        {"a": {"size": 1}, "b": {"size": 2}},
        {"a": {"size": 2}, "b": {"size": 1}},
        {"a": {"size": 1}, "b": {"size": 1}},
        {"a": {"size": 1}},
    ]
    labels = labels_of(*(Sample(settings=one).write(tmp_path / f"{n}") for n, one in enumerate(settings)))
    assert len(set(labels)) == 4
    assert not any("#" in label for label in labels)


def test_a_run_that_is_not_finished_is_named(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "half")
    (path / "result.json").unlink()
    with pytest.raises(MessiError, match=r"half is not a finished run: result\.json is missing"):
        read_run(path)


def test_a_run_that_lacks_a_value_is_named(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "old")
    write_document(path / "result.json", {"selection": "source_val", "validation": "source_val", "target_part": "all"})
    with pytest.raises(MessiError, match=r"old/result\.json cannot be read by this version: selected_step is missing"):
        read_run(path)


def test_a_run_whose_records_are_lost_is_named(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "lost")
    (path / "records.jsonl").unlink()
    with pytest.raises(MessiError, match=r"lost is damaged: .* the selected step 20"):
        read_run(path)
