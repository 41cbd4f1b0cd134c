from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from messi.core.documents import write_document
from messi.core.errors import MessiError
from messi.reports.runs import read_run, run_labels
from messi.reports.summary_text import summary, title
from messi.reports.tables import percent, result_rows, result_table

from .helpers import Sample


def table_of(*paths: Path) -> list[dict[str, str]]:
    table = result_table(result_rows([read_run(path) for path in paths]))
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def summary_of(*paths: Path) -> str:
    runs = [read_run(path) for path in paths]
    return summary(runs, result_rows(runs)).replace("\u00a0", " ")


def labels_of(*paths: Path) -> list[str]:
    return run_labels([read_run(path) for path in paths])


def test_a_row_says_how_the_selected_step_did(tmp_path: Path) -> None:
    (row,) = result_rows([read_run(Sample(seed=3).write(tmp_path / "a"))])
    values = asdict(row)
    assert values.pop("validation") == pytest.approx((0.8 + 0.9) / 2)  # step 20, not the last
    assert len(values.pop("targets")) == 1
    assert (row.targets[0].domain, row.targets[0].accuracy, row.targets[0].count) == ("sketch", 0.625, 40)
    assert values == {
        "label": "messi",
        "algorithm": "messi",
        "seed": 3,
        "steps": 30,
        "selected_step": 20,
        "averaged_steps": None,
        "validation_count": 10 + 30,
        "target_part": "all",
        "selection": "source_val",
        "protocol": "messi; steps 30",
    }


def test_the_table_of_one_run(tmp_path: Path) -> None:
    assert table_of(Sample().write(tmp_path / "a")) == [
        {
            "Run": "messi",
            "Target sketch %": "62.5 (n = 40)",
            "Validation %": "85.0 (n = 40)",
            "Selected step": "20 of 30",
            "Selection": "source_val",
            "Target part": "all",
            "Protocol": "messi; steps 30",
            "Seed": "0",
        }
    ]


def test_several_targets_also_show_the_mean_and_the_worst(tmp_path: Path) -> None:
    several = Sample(targets={"sketch": 0.7, "cartoon": 0.55}).write(tmp_path / "a")
    one = Sample(algorithm="erm", experts=(), targets={"cartoon": 0.5}).write(tmp_path / "b")
    first, second = table_of(several, one)
    assert first["Worst target %"] == "55.0 (cartoon)"
    assert second["Worst target %"] == ""
    assert (first["Mean of targets %"], second["Mean of targets %"]) == ("62.5", "")
    # What a run did not measure stays empty.
    assert (first["Target sketch %"], second["Target sketch %"]) == ("70.0 (n = 40)", "")
    assert second["Target cartoon %"] == "50.0 (n = 40)"


def test_a_run_without_target(tmp_path: Path) -> None:
    path = Sample(targets={}).write(tmp_path / "a")
    (row,) = table_of(path)
    assert row["Target part"] == ""
    assert not [name for name in row if name.startswith("Target ") and name.endswith("%")]
    assert "not known" in summary_of(path)


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.0"), (1.0, "100.0"), (0.50359, "50.4"), (0.9996, "100.0")])
def test_percent_has_one_decimal(share: float, text: str) -> None:
    assert percent(share) == text


def test_labels_name_what_tells_runs_of_one_algorithm_apart(tmp_path: Path) -> None:
    erm = Sample(algorithm="erm", experts=()).write(tmp_path / "erm")
    ot = Sample(settings={"discrepancy": "ot"}).write(tmp_path / "ot")
    mmd = Sample(settings={"discrepancy": "mmd"}, seed=1).write(tmp_path / "mmd")
    assert labels_of(erm, ot) == ["erm", "messi"]
    assert labels_of(erm, ot, mmd) == ["erm", "messi, seed 0, discrepancy ot", "messi, seed 1, discrepancy mmd"]
    assert labels_of(ot, ot) == ["messi #1", "messi #2"]


def test_labels_need_few_settings_and_leave_out_what_is_usual(tmp_path: Path) -> None:
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


def test_the_summary_of_one_run(tmp_path: Path) -> None:
    one = Sample().write(tmp_path / "a")
    assert summary_of(one) == (
        "Trained on 2 domains, messi is right on 62.5 % of the 40 examples of sketch, "
        "a domain that no training step saw."
    )


def test_the_summary_of_seeds_gives_mean_and_sample_deviation(tmp_path: Path) -> None:
    erm = Sample(algorithm="erm", experts=(), targets={"sketch": 0.5}).write(tmp_path / "erm")
    seeds = [Sample(seed=s, targets={"sketch": 0.6 + 0.02 * s}).write(tmp_path / f"{s}") for s in range(3)]
    # The deviation of 60, 62, 64 is 2.0 when divided by n - 1, and 1.6 when divided by n.
    assert "erm 50.0 % and messi 62.0 ± 2.0 % (n = 3 runs) correct" in summary_of(erm, *seeds)


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(tmp_path: Path) -> None:
    paths = [Sample(settings={"num_experts": m}, targets={"sketch": m / 10}).write(tmp_path / str(m)) for m in (2, 4)]
    assert summary_of(*paths).startswith("2 runs with different settings: from 20.0 % to 40.0 %")


def test_the_title_names_methods_and_data(tmp_path: Path) -> None:
    paths = [Sample(algorithm=name).write(tmp_path / name) for name in ("erm", "coral", "messi")]
    assert title([read_run(path) for path in paths]) == "erm, coral and messi on pets"


def test_a_run_that_is_not_finished_is_named(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "half")
    (path / "result.json").unlink()
    with pytest.raises(MessiError, match=r"half is not a finished run: result\.json is missing"):
        read_run(path)


def test_a_run_that_lacks_a_value_is_named(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "old")
    write_document(path / "result.json", {"selection": "source_val", "validation": "source_val", "target_part": "all"})
    with pytest.raises(MessiError, match=r"old/result\.json is not one that this .* read: selected_step is missing"):
        read_run(path)


def test_a_run_whose_records_are_lost_is_named(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "lost")
    (path / "records.jsonl").unlink()
    with pytest.raises(MessiError, match=r"lost is damaged: .* the selected step 20"):
        read_run(path)
