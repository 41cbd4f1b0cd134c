"""The plan of the specialisation table, and what it measures on real, tiny runs."""

from pathlib import Path

import pytest
import torch
from made_runs import cell_of
from tiny_scale import tiny_results

from messi.evaluation.model import load
from messi.experiments._base import Figure
from messi.experiments.specialisation import Specialisation, measure
from messi.reports.paper_tables import Table


def test_the_plan_is_the_papers() -> None:
    runs = Specialisation().runs()
    assert len(runs) == 48 == len({run.name for run in runs})
    assert {run.labels["target"] for run in runs} == {"Art", "Clipart", "Product", "Real World"}
    algorithms = {str(run.labels["method"]): run.config.algorithm for run in runs}
    assert {name: config.name for name, config in algorithms.items()} == {
        "OMoE": "omoe",
        "GMoE": "gmoe",
        "MESSI w/o L_div": "messi",
        "MESSI": "messi",
    }
    assert algorithms["MESSI w/o L_div"].to_dict()["diversity_weight"] == 0
    for run in runs:
        config = run.config.resolved()
        assert (config.data.name, config.settings.steps) == ("office_home", 10_000)
        assert config.encoder.backbone == "deit_small_patch16_224"
    assert {run.labels["method"] for run in Specialisation(scale="small").runs()} == {"MESSI w/o L_div", "MESSI"}


def test_experts_are_measured_on_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Specialisation(scale="small")
    results = tiny_results(tmp_path, experiment, monkeypatch)
    outcome = results.where(method="MESSI", target="a1")[0]

    examples = outcome.run.config.data.load()
    inputs = examples.inputs
    assert isinstance(inputs, torch.Tensor)
    with torch.no_grad():
        inside = load(outcome.path).algorithm.inspect(inputs[examples.domains == examples.domain_names.index("a1")])
    assert inside.experts is not None
    h, routing = inside.experts.outputs.double(), inside.experts.routing
    experts, number = h.shape[:2]
    assert number == 60, "all of the domain"
    cosines = [
        torch.stack([torch.cosine_similarity(h[m, i], h[n, i], dim=0) for i in range(number)]).mean()
        for m in range(experts)
        for n in range(experts)
        if m != n
    ]
    sigma = torch.linalg.svdvals(h.reshape(experts, -1))
    p = sigma / sigma.sum()
    expected = (
        float(torch.stack(cosines).mean()),
        float(torch.exp(-(p * p.log()).sum())),
        sum(float(routing[:, m].mean()) < 0.01 for m in range(experts)) / experts,
    )
    assert measure(outcome).numbers == pytest.approx(expected, rel=1e-5)

    table, *figures = experiment.sections(results)
    assert isinstance(table, Table)
    cosine = cell_of(table, "Mean Offdiag Cos.", "MESSI").ours
    both = [measure(one).numbers[0] for one in results.where(method="MESSI")]
    assert cosine is not None
    assert cosine.mean == pytest.approx(sum(both) / 2)
    assert [figure.name for figure in figures] == ["specialisation_messi_without_div", "specialisation_messi"]
    last = figures[-1]
    assert isinstance(last, Figure)
    assert "2 runs" in last.caption
    assert "1, 1: 1</title>" in last.svg, "an expert is like itself"


def test_what_is_not_done_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Specialisation(scale="small")
    table, *figures = experiment.sections(tiny_results(tmp_path, experiment, monkeypatch, runs=1))
    assert isinstance(table, Table)
    assert {cell.state for row in table.rows for cell in row.cells} == {"incomplete"}
    assert {cell.ours for row in table.rows for cell in row.cells} == {None}, "one of two targets is no mean over them"
    assert [figure.name for figure in figures] == ["specialisation_messi_without_div"]
