"""The plan of the specialisation table, and what it measures on real, tiny runs."""

import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.core.records import Role
from messi.data.loader import Loader
from messi.diagnostics import recording
from messi.evaluation.model import load
from messi.experiments import specialisation
from messi.experiments.specialisation import Specialisation, measure_experts
from messi.reports.plan_page import Figure
from messi.reports.table import Table
from messi.sweeps.plan import Outcome
from tests.studies.made_runs import cell_of, reported

from .tiny_scale import reopened, tiny_results


def test_the_plan_matches_the_paper() -> None:
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
        assert (config.data.name, config.training.steps) == ("office_home", 10_000)
        assert config.encoder.backbone == "deit_small_patch16_224"
    assert {run.labels["method"] for run in Specialisation(scale="small").runs()} == {"MESSI w/o L_div", "MESSI"}


def all_at_once(outcome: Outcome) -> tuple[float, ...]:
    """The definitions, computed from all outputs on the target a1 in one tensor."""
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
    return (
        float(torch.stack(cosines).mean()),
        float(torch.exp(-(p * p.log()).sum())),
        sum(float(routing[:, m].mean()) < 0.01 for m in range(experts)) / experts,
    )


def test_experts_are_measured_batch_by_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers equal those of all outputs at once, but the outputs of a batch are freed soon after it."""
    (outcome,) = tiny_results(tmp_path, Specialisation(scale="small"), monkeypatch).where(method="MESSI", target="a1")
    monkeypatch.setattr(recording, "batch_size", lambda _: 7)
    outputs: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def watched(algorithm: Algorithm, loader: Loader, role: Role) -> Iterator[recording.Trace]:
        for one in recording.trace(algorithm, loader, role):
            outputs.append(weakref.ref(one.experts.outputs))
            alive.append(sum(reference() is not None for reference in outputs))
            yield one

    monkeypatch.setattr(specialisation, "trace", watched)
    # The model rounds to float32, a batch of 7 otherwise than one of 60; in the mean cosine numbers of order 1 cancel.
    assert measure_experts(*reopened(outcome)).numbers.tolist() == pytest.approx(
        all_at_once(outcome), rel=1e-5, abs=1e-7
    )
    assert len(outputs) == 9
    assert max(alive) <= 3, "the first, the one before and this one"


def test_the_table_has_the_mean_over_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Specialisation(scale="small")
    results = tiny_results(tmp_path, experiment, monkeypatch)
    table, *figures = reported(experiment, results)
    assert isinstance(table, Table)
    cosine = cell_of(table, "Mean Offdiag Cos.", "MESSI").ours
    both = [float(measure_experts(*reopened(one)).numbers[0]) for one in results.where(method="MESSI")]
    assert cosine is not None
    assert cosine.mean == pytest.approx(sum(both) / 2)
    assert [figure.name for figure in figures] == ["specialisation_messi_without_div", "specialisation_messi"]
    last = figures[-1]
    assert isinstance(last, Figure)
    assert "2 runs. Data: Two subsets, held out: b2, a1; backbone identity." in last.caption
    assert "reduced: 5,000 embedded digits" in last.caption
    assert "1, 1: 1</title>" in last.svg, "an expert is like itself"


def test_models_are_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Specialisation(scale="small")
    results = tiny_results(tmp_path, experiment, monkeypatch)
    before = reported(experiment, results)
    for outcome in results.outcomes:
        (outcome.path / "model.safetensors").unlink()
    assert reported(experiment, results) == before


def test_a_missing_model_leaves_its_cells_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Specialisation(scale="small")
    results = tiny_results(tmp_path, experiment, monkeypatch)
    gone = results.where(method="MESSI", target="b2")[0].path
    (gone / "model.safetensors").unlink()
    table = reported(experiment, results)[0]
    assert isinstance(table, Table)
    for column in table.columns:
        assert cell_of(table, column.name, "MESSI w/o L_div").ours is not None
        assert cell_of(table, column.name, "MESSI").ours is None, "a1 alone is not a mean over targets"
        assert cell_of(table, column.name, "MESSI").state == "incomplete"
    (note,) = table.footnotes
    assert note.startswith(f"model.safetensors is missing in {gone.name}, so what its experts do on the target ")


def test_unfinished_runs_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Specialisation(scale="small")
    table, *figures = reported(experiment, tiny_results(tmp_path, experiment, monkeypatch, runs=1))
    assert isinstance(table, Table)
    assert {cell.state for row in table.rows for cell in row.cells} == {"incomplete"}
    assert {cell.ours for row in table.rows for cell in row.cells} == {None}, (
        "one of two targets is not a mean over targets"
    )
    assert [figure.name for figure in figures] == ["specialisation_messi_without_div"]
