"""The plan of the mechanism ablation, which all ablations share, and its table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from messi.algorithms.messi import MESSI
from messi.experiments.common.paper_numbers import MECHANISM
from messi.experiments.mechanism import VARIANTS, Mechanism
from messi.reports.table import Published, Table
from messi.reports.table_formats import markdown
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

DEFAULT = MESSI.Config()


def made(labels: Mapping[str, Label]) -> dict[str, Any]:
    """MESSI: 70 and 80 % with the first seed, 80 and 90 % with the second; half of it for others."""
    accuracy = 0.7 + 0.1 * int(labels["seed"]) + (0.1 if labels["target"] in ("photo", "sketch") else 0.0)
    share = 1.0 if labels["method"] == "MESSI" else 0.5
    return {"result": {"target": {str(labels["target"]): share * accuracy}}}


def test_the_plan_matches_the_paper() -> None:
    runs = Mechanism().runs()
    assert len(runs) == 72 == len({run.name for run in runs}) == len({tuple(run.labels.values()) for run in runs})
    assert {run.labels["target"] for run in runs} == {"art_painting", "cartoon", "photo", "sketch"}
    assert {run.labels["seed"] for run in runs} == {0, 1, 2}
    assert set(VARIANTS) == set(MECHANISM)
    for run in runs:
        config = run.config.resolved()
        assert (config.data.name, config.target) == ("pacs", (run.labels["target"],))
        assert (config.encoder.backbone, config.encoder.pretrained) == ("deit_small_patch16_224", True)
        assert config.deviations() == {}
        assert config.training.steps == 5000


def test_variants_differ_from_messi_as_named() -> None:
    def changes(variant: str) -> dict[str, Any]:
        return {key: value for key, value in vars(VARIANTS[variant]).items() if value != getattr(DEFAULT, key)}

    assert changes("ERM-MoE") == dict.fromkeys(
        ("ssi_weight", "sparsity_weight", "balance_weight", "diversity_weight"), 0.0
    )
    assert changes("Global-MoE") == {"selector": "global"}
    assert changes("Random-Subset-MoE") == {"selector": "random"}
    assert changes("Domain-Only Routing") == {"selector": "domain"}
    assert changes("MESSI w/o L_sp,L_bal") == {"sparsity_weight": 0.0, "balance_weight": 0.0}
    assert changes("MESSI") == {}


def test_options_reach_the_runs(tmp_path: Path) -> None:
    (tmp_path / "deit_tiny_patch16_224.pth").touch()
    experiment = Mechanism(path="here", weights=str(tmp_path), backbone="deit_tiny_patch16_224", steps=7, seeds=1)
    (config,) = {str(run.config.resolved().encoder): run.config.resolved() for run in experiment.runs()}.values()
    assert config.encoder.weights == str(tmp_path / "deit_tiny_patch16_224.pth")
    assert config.data.to_dict()["path"] == str(Path("here", "PACS"))
    assert config.training.steps == 7
    assert len(experiment.runs()) == 24


def test_the_table(tmp_path: Path) -> None:
    experiment = Mechanism(seeds=2)
    table, *_ = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)
    ours = cell_of(table, "PACS", "MESSI", "routing class-domain mass", "yes", "yes")
    assert ours.ours is not None
    assert ours.ours.mean == pytest.approx(80)
    assert ours.ours.spread == pytest.approx(50**0.5)
    assert ours.paper == Published(90.9, 0.7)
    assert cell_of(table, "PACS", "Domain-Only Routing", "routing domain mass", "no", "yes").paper == (88.2, 0.2)
    assert [len(group) for group in table.groups] == [4, 2]
    assert table.is_best(ours, 0)


def test_differences_are_to_the_network_without_alignment(tmp_path: Path) -> None:
    experiment = Mechanism(seeds=2)
    _, table, _ = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)
    assert (table.name, table.title[:23]) == ("mechanism_differences", "Differences to ERM-MoE ")
    assert {row.heads for row in table.rows} == {(variant, "PACS") for variant in VARIANTS} - {("ERM-MoE", "PACS")}
    found = cell_of(table, "Difference", "MESSI").ours
    assert found is not None
    assert [found.mean, found.n] == pytest.approx([40, 8])


def test_other_data_or_another_backbone_has_no_numbers_of_the_paper(tmp_path: Path) -> None:
    small, other = Mechanism(scale="small"), Mechanism(backbone="deit_tiny_patch16_224", seeds=1)
    assert len(small.runs()) == 12
    for number, experiment in enumerate((small, other)):
        table, *_ = experiment.report(made_results(tmp_path / str(number), experiment, made))
        assert isinstance(table, Table)
        assert all(cell.paper is None for row in table.rows for cell in row.cells)
        assert "↳ paper" not in markdown(table)
        said = "instead of the paper's data" if experiment.small else "DeiT-Ti/16"
        assert said in table.caption
