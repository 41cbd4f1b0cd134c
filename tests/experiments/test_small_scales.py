"""The small scale of every experiment, as a user would run it.

Those that train take minutes and run nightly (pytest -m nightly): 13 minutes in total on 2 busy CPU cores.
"""

import multiprocessing
from pathlib import Path

import pytest

from messi.cli.main import main
from messi.studies.common.base import EXPERIMENTS

TABLES = ("md", "csv", "tex", "html")
TRAINED = {
    "alignment": (6, ["alignment", "alignment_short"], []),
    "cost": (4, ["cost"], []),
    "diwa": (24, ["diwa", "diwa_differences"], []),
    "domain_growth": (12, ["domain_growth", "domain_growth_full", "domain_growth_differences"], ["domain_growth"]),
    "domainbed": (24, ["domainbed", "domainbed_rotated_mnist", "domainbed_differences", "domainbed_learned"], []),
    "lambda_sweep": (6, ["lambda_sweep", "lambda_sweep_differences"], ["lambda_sweep_curves"]),
    "leave_one_out": (12, ["leave_one_out", "leave_one_out_differences"], []),
    "mechanism": (12, ["mechanism", "mechanism_differences", "mechanism_learned"], []),
    "readings": (5, ["readings", "readings_differences"], []),
    "readings_pacs": (10, ["readings_pacs", "readings_pacs_differences"], []),
    "recipe": (6, ["recipe_few_digits", "recipe_few_digits_differences", "recipe_few_digits_learned"], []),
    "recipe_choice": (4, ["recipe_choice_few_digits", "recipe_choice_few_digits_differences"], []),
    "recipe_confirmation": (
        20,
        ["recipe_confirmation", "recipe_confirmation_differences", "recipe_confirmation_learned"],
        [],
    ),
    "recipe_heads": (16, ["recipe_heads_accuracy", "recipe_heads_validation", "recipe_heads_differences"], []),
    "recipe_screening": (12, ["recipe_screening_few_digits_2", "recipe_screening_few_digits_2_runs"], []),
    "routing": (2, [], ["routing_0_seed0", "routing_75_seed0"]),
    "specialisation": (4, ["specialisation"], ["specialisation_messi", "specialisation_messi_without_div"]),
}
"""By experiment: the number of runs, the tables and the figures."""
UNTRAINED = {"model_size", "theory"}
NEEDS_DATA = {"feature_defaults", "iwildcam"}
"""Tested on synthetic data in tests of their own."""


def test_every_experiment_is_known_here() -> None:
    assert set(EXPERIMENTS.names()) == TRAINED.keys() | UNTRAINED | NEEDS_DATA


@pytest.mark.parametrize("name", sorted(UNTRAINED))
def test_experiments_without_training_finish_at_once(name: str, tmp_path: Path) -> None:
    assert main(["reproduce", name, "--scale", "small", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").exists()
    document = (tmp_path / "tables" / "README.md").read_text()
    assert document.count("|") > 50
    assert "reduced" not in document  # there is nothing to reduce, so these are the full numbers
    assert "Reduced" not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("name", sorted(NEEDS_DATA))
def test_missing_data_is_reported(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere, out = str(tmp_path / "nowhere"), str(tmp_path / "plan")  # else it would be downloaded
    assert main(["reproduce", name, "--scale", "small", "--path", nowhere, "--out", out]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "plan").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(TRAINED))
def test_the_small_scale_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, tables, figures = TRAINED[name]
    jobs = str(multiprocessing.cpu_count())
    command = ["reproduce", name, "--scale", "small", "--devices", "cpu", "--jobs", jobs, "--out", str(tmp_path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert f"[{runs}/{runs}," in printed
    assert "its numbers cannot be compared with the paper's." in printed
    written = {file.name for file in (tmp_path / "tables").iterdir()}
    expected = {f"{table}.{ending}" for table in tables for ending in TABLES}
    assert written == expected | {f"{figure}.svg" for figure in figures} | {"README.md"}
