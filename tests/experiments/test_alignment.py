"""The plan of the alignment controls, the comparison with constructed models, and the tables of tiny real runs."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from messi.core.errors import MessiError
from messi.diagnostics.alignment import class_conditional_energy
from messi.diagnostics.slots import responsibilities
from messi.evaluation.model import load
from messi.experiments import alignment
from messi.experiments.alignment import Alignment, Slots, compare, measure_slots
from messi.experiments.common.methods import MESSI_OT
from messi.experiments.common.paper_numbers import ROUTING_AWARE_ALIGNMENT
from messi.losses.ssi.slots import SlotRule
from messi.reports.table import Table
from tests.studies.made_runs import cell_of, made_results, reported

from .tiny_scale import reopened, tiny_results

EXPERTS, CLASSES, DOMAINS = 6, 4, 3


def seen_by(routing: Tensor, outputs: Tensor) -> Slots:
    """Return a model with one example of every class in every domain: routing [K, C, M], outputs [M, K * C, R]."""
    cells = list(itertools.product(range(DOMAINS), range(CLASSES)))
    domains, labels = torch.tensor(cells).T
    apart, apart_unit = (
        class_conditional_energy(features, labels, domains, num_classes=CLASSES, num_domains=DOMAINS)
        for features in (outputs, functional.normalize(outputs, dim=-1))
    )
    return Slots(responsibilities(routing, SlotRule()), apart, apart_unit)


def one_expert(expert: int) -> Tensor:
    return torch.eye(EXPERTS)[expert].expand(DOMAINS, CLASSES, EXPERTS)


def lines(scale: float) -> Tensor:
    """Domain d is at scale * (d + 1) on a line, regardless of class and expert."""
    points = scale * (torch.arange(DOMAINS) + 1.0).repeat_interleave(CLASSES)
    return points[None, :, None].expand(EXPERTS, -1, 1)


def energy(a: Tensor, b: Tensor) -> float:
    """The definition, pair by pair."""
    xy, xx, yy = (
        sum(float((x - y).double().norm()) for x in first for y in second) / (len(first) * len(second))
        for first, second in ((a, b), (a, a), (b, b))
    )
    return 2 * xy - xx - yy


def test_the_plan_matches_the_paper() -> None:
    runs = Alignment().runs()
    assert len(runs) == 162 == len({run.name for run in runs})
    assert len(Alignment(data=("pacs",)).runs()) == 36
    selectors = {str(run.labels["method"]): run.config.algorithm.to_dict()["selector"] for run in runs}
    assert selectors == {"Global-MoE": "global", "Random-Subset-MoE": "random", "MESSI": "routing"}
    with pytest.raises(MessiError, match="share must be above 0 and at most 1, but is 0"):
        Alignment(share=0.0)


def test_the_same_model_three_times() -> None:
    torch.manual_seed(0)
    one = seen_by(torch.rand(DOMAINS, CLASSES, EXPERTS), torch.randn(EXPERTS, DOMAINS * CLASSES, 3))
    numbers = compare(one, one, one, share=0.2)
    for pair in ("(G,R)", "(M,G)", "(M,R)"):
        assert numbers[f"r{pair}"] == pytest.approx(1)
        assert numbers[f"J{pair}"] == 1
    assert numbers["Ctrl. Delta"] == pytest.approx(numbers["MESSI Delta"])


def test_routers_with_one_expert_give_the_papers_correlations() -> None:
    """The paper reports +1.00 and -0.20 on all data: the same expert, and a different one of six."""
    control, messi = seen_by(one_expert(0), lines(1.0)), seen_by(one_expert(3), lines(0.5))
    numbers = compare(control, control, messi, share=0.1)
    assert numbers["r(G,R)"] == pytest.approx(1.0)
    assert numbers["r(M,G)"] == numbers["r(M,R)"] == pytest.approx(-0.2)
    assert (numbers["J(G,R)"], numbers["J(M,G)"], numbers["J(M,R)"]) == (1, 0, 0)


def test_overlap_and_distances_by_hand() -> None:
    """A sixth of 72 slots is 12: all slots of one expert, or 9 of one and 3 of another."""
    half = one_expert(1).clone()
    half[:, 0] = torch.eye(EXPERTS)[2]  # class 0, in its three pairs of domains, goes to another expert
    everywhere, at_random, messi = (
        seen_by(routing, lines(scale)) for routing, scale in ((one_expert(1), 1.0), (half, 3.0), (half, 0.5))
    )
    numbers = compare(everywhere, at_random, messi, share=1 / 6)
    assert numbers["J(M,R)"] == 1
    assert numbers["J(M,G)"] == numbers["J(G,R)"] == pytest.approx(9 / 15)
    # Two points at distance t have the energy distance 2 t; the pairs are 1, 2 and 1 apart: 8 / 3 at scale 1.
    assert numbers["MESSI Delta"] == pytest.approx(0.5 * 8 / 3)
    assert numbers["Ctrl. Delta"] == pytest.approx((1 + 3) / 2 * 8 / 3)
    assert numbers["MESSI Delta, unit"] == numbers["Ctrl. Delta, unit"] == pytest.approx(0, abs=1e-12)


def test_distances_use_the_slots_that_messi_selects() -> None:
    torch.manual_seed(0)
    outputs = torch.zeros(EXPERTS, DOMAINS * CLASSES, 1)
    outputs[4] = lines(1.0)[4]
    control = seen_by(one_expert(4), outputs)
    for expert, expected in ((4, 8 / 3), (2, 0.0)):
        numbers = compare(control, control, seen_by(one_expert(expert), outputs), share=1 / 6)
        assert numbers["Ctrl. Delta"] == pytest.approx(expected)


def test_slots_are_measured_on_validation_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tiny_results(tmp_path, Alignment(scale="small"), monkeypatch, runs=1)
    outcome = results.outcomes[0]
    algorithm, loader = reopened(outcome)
    seen = measure_slots(algorithm, loader)

    sealed, model = loader.data, load(outcome.path).algorithm
    names = [sealed.domain_names[domain] for domain in sealed.domains("source_val")]
    assert names == ["a1", "a2", "b1"], "the target b2 is not among them"
    rho, outputs = torch.zeros(3, 2, 6), {}
    for k, domain in enumerate(sealed.domains("source_val")):
        indices = sealed.indices("source_val", domain)
        with torch.no_grad():
            experts = model.inspect(sealed.features(indices)).experts
        assert experts is not None
        for c in range(2):
            rho[k, c] = experts.routing[sealed.labels(indices) == c].mean(0)
            outputs[k, c] = experts.outputs[:, sealed.labels(indices) == c]
    for p, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
        expected = torch.sigmoid(4 * rho[i]) * torch.sigmoid(4 * rho[j])
        torch.testing.assert_close(seen.weights[p].float(), expected)
        for m, c in itertools.product(range(6), range(2)):
            a, b = outputs[i, c][m], outputs[j, c][m]
            assert seen.apart[m, p, c].item() == pytest.approx(energy(a, b), rel=1e-4)
            unit = energy(a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True))
            assert seen.apart_unit[m, p, c].item() == pytest.approx(unit, rel=1e-4)


def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three equal methods: every similarity is 1, and the distances of control and MESSI are equal."""
    monkeypatch.setattr(alignment, "METHODS", dict.fromkeys(alignment.METHODS, MESSI_OT))
    experiment = Alignment(scale="small")
    whole, short = reported(experiment, tiny_results(tmp_path, experiment, monkeypatch))
    assert isinstance(whole, Table)
    assert isinstance(short, Table)
    values = {column.name: cell_of(whole, column.name, "Two subsets").ours for column in whole.columns}
    means = {name: one.mean for name, one in values.items() if one}
    assert {means[name] for name in means if name[0] == "J"} == {1.0}
    assert [means[name] for name in means if name[0] == "r"] == [pytest.approx(1)] * 3
    assert means["Ctrl. Delta"] == pytest.approx(means["MESSI Delta"])
    assert means["Ctrl. Delta"] > 0
    for column, name in (("Control", "Ctrl. Delta, unit"), ("MESSI", "MESSI Delta, unit")):
        assert cell_of(short, column, "Discrepancy, unit").ours == values[name]
    assert "the 20% of the slots" in whole.caption


def test_models_are_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the models the tables stay the same, and another share gives the same numbers as the models."""
    results = tiny_results(tmp_path, Alignment(scale="small"), monkeypatch)
    before = reported(Alignment(scale="small"), results)
    seen = [measure_slots(*reopened(outcome)) for outcome in results.where(target="a1")]
    for outcome in results.outcomes:
        (outcome.path / "model.safetensors").unlink()
    assert reported(Alignment(scale="small"), results) == before

    expected = compare(*seen, share=0.5)
    monkeypatch.setattr(alignment, "target_average", lambda scores, _: scores["a1", 0])
    whole = reported(Alignment(scale="small", share=0.5), results)[0]
    assert isinstance(whole, Table)
    assert {c.name: cell_of(whole, c.name, "Two subsets").ours for c in whole.columns} == pytest.approx(expected)


def test_a_missing_model_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Alignment(scale="small")
    results = tiny_results(tmp_path, experiment, monkeypatch)
    gone = results.where(method="Global-MoE", target="a1")[0].path
    (gone / "model.safetensors").unlink()
    for table in reported(experiment, results):
        assert isinstance(table, Table)
        assert {(cell.ours, cell.state) for row in table.rows for cell in row.cells} == {(None, "incomplete")}
        (note,) = table.footnotes
        assert note.startswith(f"model.safetensors is missing in {gone.name}, so its slots cannot be measured")


def test_a_missing_run_leaves_cells_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all three methods on one target, but not on the other, there is no mean over targets."""
    experiment = Alignment(scale="small")
    whole = reported(experiment, tiny_results(tmp_path, experiment, monkeypatch, runs=3))[0]
    assert isinstance(whole, Table)
    assert {(cell.ours, cell.state) for row in whole.rows for cell in row.cells} == {(None, "incomplete")}


def test_both_readings_show_the_papers_numbers(tmp_path: Path) -> None:
    experiment = Alignment(seeds=1)
    whole, short = reported(experiment, made_results(tmp_path, experiment, lambda _: None))
    assert isinstance(whole, Table)
    assert isinstance(short, Table)
    titles = ("PACS", "OfficeHome", "TerraInc", "DomainNet")
    for title, paper in zip(titles, ROUTING_AWARE_ALIGNMENT.values(), strict=True):
        for column in whole.columns:
            assert cell_of(whole, column.name, title).paper == paper[column.name.removesuffix(", unit")]
    assert "messi, 5,000, 10,000, 15,000 steps" in whole.caption
    assert cell_of(short, "MESSI", "Resp. corr. r").paper == (-0.2, None)
    assert cell_of(short, "Control", "Discrepancy, unit").paper == (0.234, 0.020)
    assert "Data: PACS, held out: art_painting, cartoon, photo, sketch; backbone DeiT-S/16" in short.caption
