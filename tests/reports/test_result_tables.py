"""The tables of results on a page."""

from dataclasses import asdict
from pathlib import Path

import pytest

from messi.reports.number_format import percent
from messi.reports.result_tables import (
    MethodResults,
    group_by_method,
    method_results,
    methods_table,
    result_rows,
    runs_table,
)
from messi.reports.runs import read_run
from messi.reports.statistics import Summary
from messi.reports.table import CellText

from .helpers import Sample


def table_of(*paths: Path) -> list[dict[str, str]]:
    table = runs_table(result_rows([read_run(path) for path in paths]))
    names = (*table.heads, *(column.name for column in table.columns))
    return [
        dict(zip(names, (*row.heads, *(" ".join(_parts(text)) for text in table.texts(row))), strict=True))
        for row in table.rows
    ]


def _parts(text: CellText) -> list[str]:
    return [part for part in (text.text, text.mean, text.note) if part]


def test_a_row_contains_the_result_of_the_selected_step(tmp_path: Path) -> None:
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
        "averaged_runs": "",
        "better_step": None,
        "validation_count": 10 + 30,
        "target_part": "all",
        "selection": "source_val",
        "recipe": "",
        "protocol": "messi; steps 30",
    }


def test_the_table_of_one_run(tmp_path: Path) -> None:
    assert table_of(Sample().write(tmp_path / "a")) == [
        {
            "Run": "messi",
            "Target sketch %": "62.5 n = 40",
            "Validation %": "85.0 n = 40",
            "Selected step": "20 of 30",
            "Selection": "source_val",
            "Target part": "all",
            "Protocol": "messi; steps 30",
            "Seed": "0",
        }
    ]


def test_a_recipe_is_shown_if_a_run_follows_one(tmp_path: Path) -> None:
    plain, named = table_of(
        Sample(seed=1).write(tmp_path / "a"), Sample(seed=2, result={"recipe": "paper"}).write(tmp_path / "b")
    )
    assert [(row["Recipe"], row["Protocol"]) for row in (plain, named)] == [
        ("", "messi; steps 30"),
        ("paper", "messi; steps 30"),
    ]


def test_several_targets_also_show_the_mean_and_the_worst(tmp_path: Path) -> None:
    several = Sample(targets={"sketch": 0.7, "cartoon": 0.55}).write(tmp_path / "a")
    one = Sample(algorithm="erm", experts=(), targets={"cartoon": 0.5}).write(tmp_path / "b")
    first, second = table_of(several, one)
    assert first["Worst target %"] == "55.0 cartoon"
    assert second["Worst target %"] == ""
    assert (first["Mean of targets %"], second["Mean of targets %"]) == ("62.5", "")
    # What a run did not measure stays empty.
    assert (first["Target sketch %"], second["Target sketch %"]) == ("70.0 n = 40", "")
    assert second["Target cartoon %"] == "50.0 n = 40"


def test_a_run_without_target(tmp_path: Path) -> None:
    path = Sample(targets={}).write(tmp_path / "a")
    (row,) = table_of(path)
    assert row["Target part"] == ""
    assert not [name for name in row if name.startswith("Target ") and name.endswith("%")]


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.0"), (1.0, "100.0"), (0.50359, "50.4"), (0.9996, "100.0")])
def test_percent_has_one_decimal(share: float, text: str) -> None:
    assert percent(share) == text


def methods_of(paths: list[Path]) -> MethodResults:
    table = method_results([read_run(path) for path in paths])
    assert table is not None
    return table


def close(mean: float, spread: float | None, n: int) -> Summary:
    return Summary(pytest.approx(mean), None if spread is None else pytest.approx(spread), n)  # type: ignore[arg-type]


def test_runs_of_one_method_are_averaged_over_seeds(paths: list[Path]) -> None:
    table = methods_of(paths)
    assert table.targets == ("art", "photo")
    erm, coral = table.methods
    deviation = 0.1 / 2**0.5  # of two values that are 0.1 apart, divided by n - 1
    assert erm.targets == (close(0.55, deviation, 2), close(0.85, deviation, 2))
    assert erm.average == close(0.7, 0, 2)  # both seeds have the same average over targets
    assert erm.worst is not None
    assert (erm.worst.target, erm.worst.summary) == ("art", close(0.55, deviation, 2))
    assert erm.validation == close(0.85, 0, 2)
    assert (erm.runs, coral.runs) == (4, 3)
    assert coral.targets == (close(0.7, None, 1), close(0.8, 0.2 / 2**0.5, 2))


def test_an_average_over_missing_runs_stays_empty_and_the_best_are_known(paths: list[Path]) -> None:
    table = methods_of(paths)
    assert table.methods[1].average is None
    assert table.methods[1].worst is None
    shown = methods_table(table)
    best = [[text.mean for text in shown.texts(row) if text.best] for row in shown.rows]
    assert best == [["85.0"], ["70.0"]], "there is no other mean over targets to compare with"


def test_one_run_per_method_needs_no_second_table(tmp_path: Path) -> None:
    paths = [Sample(algorithm=name).write(tmp_path / name) for name in ("erm", "messi")]
    assert method_results([read_run(path) for path in paths]) is None


def test_a_domain_held_out_alone_and_with_others_has_no_column(tmp_path: Path) -> None:
    alone = [Sample(seed=seed).write(tmp_path / f"{seed}") for seed in (0, 1)]
    both = Sample(targets={"sketch": 0.5, "cartoon": 0.5}).write(tmp_path / "both")
    assert method_results([read_run(path) for path in [*alone, both]]) is None
    none = Sample(targets={}).write(tmp_path / "none")
    assert method_results([read_run(path) for path in [*alone, none]]) is None


def test_other_settings_make_another_method(tmp_path: Path) -> None:
    samples = [Sample(seed=s, settings={"ssi_weight": w}) for w in (0.01, 0.1) for s in (0, 1)]
    runs = [read_run(sample.write(tmp_path / f"{place}")) for place, sample in enumerate(samples)]
    groups = group_by_method(runs)
    assert {label: len(members) for label, members in groups.items()} == {
        "messi, ssi_weight 0.01": 2,
        "messi, ssi_weight 0.1": 2,
    }
