"""MESSI on the example of the theorem, and the terms of its loss."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from messi.algorithms.messi import MESSI, balance, diversity, sparsity
from messi.core.batch import Batch, Task
from messi.core.errors import MessiError
from messi.core.records import RoutingRecord
from messi.core.rundir import RunDir
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.losses.ssi.loss import ssi_loss
from messi.losses.ssi.slots import Selector, select
from messi.models.encoder import EncoderConfig


def build(**settings: float | str) -> tuple[MESSI, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=2, num_domains=2)
    config = MESSI.Config(**settings)  # type: ignore[arg-type]  # names and values are the tests' own
    algorithm = MESSI(config, task=task, encoder=EncoderConfig(backbone="mlp"))
    domains = torch.arange(2).repeat_interleave(8)
    return algorithm, Batch(inputs=torch.randn(16, 5), labels=torch.randint(2, (16,)), domains=domains)


def test_every_term_is_its_weight_times_its_loss() -> None:
    algorithm, batch = build(ssi_weight=0.3, sparsity_weight=0.5, balance_weight=0.7, diversity_weight=0.9)
    out = algorithm.head(algorithm.encoder(batch.inputs))
    terms = algorithm.loss(batch)
    torch.testing.assert_close(terms["ssi"], 0.3 * ssi_loss(out.experts, out.routing, batch.labels, batch.domains))
    torch.testing.assert_close(terms["sp"], 0.5 * sparsity(out.routing))
    torch.testing.assert_close(terms["bal"], 0.7 * balance(out.routing.mean(0)))
    torch.testing.assert_close(terms["div"], 0.9 * diversity(out.experts))


def test_the_experts_add_to_the_network_for_features_and_replace_that_of_every_other_encoder() -> None:
    task, inputs = Task(input_shape=(5,), num_classes=2, num_domains=2), torch.randn(3, 5)
    for backbone, adds in (("residual_mlp", True), ("mlp", False), ("identity", False)):
        algorithm = MESSI(MESSI.Config(), task=task, encoder=EncoderConfig(backbone=backbone))
        found = algorithm.inspect(inputs)
        assert found.experts is not None
        assert found.encoded is not None
        mixed = torch.einsum("bm,mbd->bd", found.experts.routing, found.experts.outputs)
        torch.testing.assert_close(found.classified, mixed + found.encoded if adds else mixed, msg=backbone)


def test_a_term_whose_weight_is_zero_is_left_out() -> None:
    """All four: the classification-only control ERM-MoE."""
    off = {f"{name}_weight": 0.0 for name in ("ssi", "sparsity", "balance", "diversity")}
    algorithm, batch = build(**off)
    assert set(algorithm.loss(batch)) == {"cls"}
    for setting, term in zip(off, ("ssi", "sp", "bal", "div"), strict=True):
        assert set(build(**{setting: 0.0})[0].loss(batch)) == {"cls", "ssi", "sp", "bal", "div"} - {term}


def test_a_debiased_mmd_is_refused() -> None:
    with pytest.raises(MessiError, match="debiased applies to the discrepancy 'ot' only"):
        MESSI.Config(discrepancy="mmd", debiased=True)


@pytest.mark.parametrize("selector", ["global", "random", "domain"])
def test_a_control_differs_only_in_its_selector(selector: Selector) -> None:
    routed, batch = build()
    control, _ = build(selector=selector)
    out = control.head(control.encoder(batch.inputs))
    torch.manual_seed(0)
    routing, labels = select(out.routing, batch.labels, selector=selector, num_classes=2)
    expected = {**routed.loss(batch), "ssi": 0.01 * ssi_loss(out.experts, routing, labels, batch.domains)}
    torch.manual_seed(0)
    terms = control.loss(batch)
    assert not torch.equal(terms["ssi"], routed.loss(batch)["ssi"])
    torch.testing.assert_close(terms, expected)


@pytest.mark.parametrize(
    ("setting", "value", "term"),
    [
        ("discrepancy", "mmd", "ssi"),
        ("reduction", "sum", "ssi"),
        ("reduction", "weighted", "ssi"),
        ("slot_weight", "product", "ssi"),
        ("slot_weight", "centred", "ssi"),
        ("scale_free", True, "ssi"),
        ("debiased", True, "ssi"),
        ("sharpness", 1.0, "ssi"),
        ("epsilon", 5.0, "ssi"),
        ("epsilon_scale", "absolute", "ssi"),
        ("iterations", 1, "ssi"),
        ("diversity", "frobenius", "div"),
        ("diversity_reduction", "mean", "div"),
        ("balance_momentum", 0.5, "bal"),
    ],
)
def test_every_option_changes_its_term_and_no_other(setting: str, value: float | str, term: str) -> None:
    default, batch = build()
    changed, _ = build(**{setting: value})
    before, after = default.loss(batch), changed.loss(batch)
    assert [name for name in before if not torch.equal(before[name], after[name])] == [term]


def test_the_router_is_not_trained_by_the_alignment() -> None:
    algorithm, batch = build()
    algorithm.loss(batch)["ssi"].backward()
    assert algorithm.head.router.weight.grad is None
    assert algorithm.head.experts.weight_in.grad is not None
    assert algorithm.head.experts.weight_in.grad.abs().sum() > 0


def test_the_balanced_load_with_momentum_is_a_running_mean() -> None:
    algorithm, batch = build(balance_momentum=0.75)
    routing = algorithm.head(algorithm.encoder(batch.inputs)).routing.mean(0).detach()
    algorithm.loss(batch)
    algorithm.loss(batch)
    expected = 0.75 * (0.75 / 6 + 0.25 * routing) + 0.25 * routing
    torch.testing.assert_close(algorithm.load, expected)


def routing_by_class(path: Path) -> dict[str, Tensor]:
    """Return P(expert | domain, class) as [classes, experts] for every domain."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for record in RunDir(path).read_records():
        if isinstance(record, RoutingRecord):
            rows.setdefault(record.domain, []).append(record.experts)
    return {domain: torch.tensor(experts) for domain, experts in rows.items()}


def separation(path: Path) -> tuple[float, Tensor]:
    """Return the largest difference of routing within a subset, and the smallest between the subsets for each class.

    The difference is the total variation between two domains: 0 for the same experts, 1 for disjoint ones.
    """
    routing = routing_by_class(path)

    def difference(one: str, other: str) -> Tensor:
        return (routing[one] - routing[other]).abs().sum(-1) / 2

    within = torch.cat([difference("a1", "a2"), difference("b1", "b2")]).max()
    between = torch.stack([difference(a, b) for a in ("a1", "a2") for b in ("b1", "b2")]).amin(0)
    return float(within), between


def test_on_the_constructive_example_the_subsets_are_recovered(tmp_path: Path) -> None:
    """Every run keeps both features and routes the domains of a subset alike; most classes separate the two subsets.

    For seeds 0 to 9, 16 of 20 classes did, with 8 and with 32 examples per domain. A router that ignored the subsets
    would separate none. Batches of 8 take a third of the time.
    """
    apart = []
    for seed in range(5):
        settings = TrainingConfig(steps=600, evaluate_every=600, learning_rate=1e-2, batch_per_domain=8)
        config = RunConfig(data=TwoSubsets(), algorithm=MESSI.Config(), training=settings, seed=seed)
        result = run(config, out=tmp_path / str(seed), device="cpu")
        assert min(result.source_val.values()) > 0.98
        within, between = separation(result.path)
        assert within < 0.15
        apart.append(between > 0.8)
    assert torch.stack(apart).double().mean() > 0.5
