"""The subset-conditioned invariance loss against its float64 reference, and for extreme batches."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from messi.core.errors import MessiError
from messi.discrepancy import reference
from messi.discrepancy.mmd import BANDWIDTHS
from messi.losses.ssi.loss import Discrepancy, Reduction, scale_free, ssi_loss
from messi.losses.ssi.slots import SlotWeight

EPSILON = 5.0
"""Absolute; about half the mean cost of the batches here, for which 200 rounds converge."""
ROUNDS = 200


@dataclass(frozen=True)
class Batch:
    features: Tensor
    routing: Tensor
    labels: Tensor
    domains: Tensor

    def loss(self, **options: Any) -> Tensor:
        return ssi_loss(self.features, self.routing, self.labels, self.domains, **options)

    def absolute(self, **options: Any) -> Tensor:
        return self.loss(epsilon=EPSILON, epsilon_scale="absolute", iterations=ROUNDS, **options)

    def twin(self, *, slot_weight: str = "sigmoid", debiased: bool = False) -> tuple[Tensor, Tensor]:
        """Return the weights and the values of the slots of all experts."""
        weights = reference.slot_weights(
            self.routing, self.labels, self.domains, sharpness=4.0, slot_weight=slot_weight
        )
        values = reference.slot_values(
            self.features, self.labels, self.domains, epsilon=EPSILON, debiased=debiased, iterations=ROUNDS
        )
        return weights, values

    def gradient(self, loss: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(loss, self.features)
        return gradient


def batch(labels: Tensor, domains: Tensor, *, experts: int = 3, width: int = 5) -> Batch:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(experts, len(labels), width, generator=generator) + 0.3 * domains.sign()[:, None]
    routing = torch.randn(len(labels), experts, generator=generator).mul(2).softmax(-1)
    return Batch(features.requires_grad_(), routing, labels, domains)


def mixed_batch() -> Batch:
    """Return a batch of 3 domains and 4 classes with cells of 0 to 4 examples, in no order."""
    labels = torch.tensor([0, 1, 0, 0, 2, 1, 0, 2, 1, 0, 0, 3, 2, 0, 1, 0])
    domains = torch.tensor([0, 2, 1, 0, 0, 1, 2, 1, 2, 1, 0, 0, 0, 1, 2, 0])
    return batch(labels, domains)


def assert_close(actual: Tensor, expected: Tensor, *, rtol: float) -> None:
    """Compare in the Euclidean norm: for a gradient, an entry near zero is as accurate as the others."""
    assert (actual.double() - expected.double()).norm().item() <= rtol * expected.double().norm().item()


def reduced(weights: Tensor, values: Tensor, reduction: Reduction) -> Tensor:
    number = {"sum": 1.0, "mean": float(len(values)), "weighted": weights.sum().item()}[reduction]
    return (weights * values).sum() / number


class TestTwin:
    @pytest.mark.parametrize("reduction", ["sum", "mean", "weighted"])
    def test_value_and_gradient_match_the_twin(self, reduction: Reduction) -> None:
        given = mixed_batch()
        loss = given.absolute(reduction=reduction)
        weights, values = given.twin()
        expected = reduced(weights, values, reduction)
        assert len(values) == 3 * (3 + 1 + 1)
        assert_close(loss, expected, rtol=1e-5)
        assert_close(given.gradient(loss), given.gradient(expected), rtol=1e-4)

    @pytest.mark.parametrize("reduction", ["sum", "mean"])
    def test_mmd_is_the_weighted_sum_of_the_twin(self, reduction: Reduction) -> None:
        given = mixed_batch()
        loss = given.loss(discrepancy="mmd", reduction=reduction)
        terms = []
        for first, second in reference.slots(given.labels, given.domains):
            for expert, mass in enumerate(given.routing.double().T):
                weight = torch.sigmoid(4 * mass[first].mean()) * torch.sigmoid(4 * mass[second].mean())
                x, y = given.features[expert, first], given.features[expert, second]
                terms.append(weight * reference.mmd_squared(x, y, bandwidths=BANDWIDTHS))
        stacked = torch.stack(terms)
        expected = stacked.sum() if reduction == "sum" else stacked.mean()
        assert_close(loss, expected, rtol=1e-5)
        assert_close(given.gradient(loss), given.gradient(expected), rtol=1e-4)

    @pytest.mark.parametrize("debiased", [False, True])
    @pytest.mark.parametrize("slot_weight", ["product", "centred"])
    def test_options_beyond_the_paper_match_the_twin(self, slot_weight: SlotWeight, debiased: bool) -> None:
        given = mixed_batch()
        for reduction in ("mean", "weighted"):
            loss = given.absolute(reduction=reduction, slot_weight=slot_weight, debiased=debiased)
            expected = reduced(*given.twin(slot_weight=slot_weight, debiased=debiased), reduction)
            assert_close(loss, expected, rtol=1e-5)
            assert_close(given.gradient(loss), given.gradient(expected), rtol=1e-4)

    def test_345_classes_of_mostly_singletons(self) -> None:
        generator = torch.Generator().manual_seed(1)
        labels = torch.randint(345, (160,), generator=generator)
        given = batch(labels, torch.arange(160) % 5, experts=2)
        loss = given.absolute(reduction="sum")
        weights, values = given.twin()
        total = (weights * values).sum()
        assert len(values) > 40
        assert_close(loss, total, rtol=1e-5)
        assert_close(given.gradient(loss), given.gradient(total), rtol=1e-4)

    def test_one_class(self) -> None:
        given = batch(torch.zeros(9, dtype=torch.long), torch.arange(9) % 3)
        loss = given.absolute(reduction="sum")
        weights, values = given.twin()
        assert_close(loss, (weights * values).sum(), rtol=1e-5)

    @pytest.mark.parametrize("sharpness", [0.0, 1.0, 20.0])
    def test_sharpness_changes_the_weights(self, sharpness: float) -> None:
        # One slot of two single examples: the loss is the weight times their squared distance.
        features = torch.tensor([[[0.0, 0.0], [3.0, 4.0]]])
        routing = torch.tensor([[1.0], [0.5]])
        loss = ssi_loss(features, routing, torch.tensor([0, 0]), torch.tensor([0, 1]), sharpness=sharpness)
        gates = torch.sigmoid(torch.tensor([sharpness, sharpness / 2], dtype=torch.float64))
        assert loss.item() == pytest.approx(25 * gates.prod().item(), rel=1e-5)


class TestEpsilon:
    @pytest.mark.parametrize("epsilon", [0.05, 0.5])
    def test_relative_epsilon_is_in_units_of_the_mean_of_all_active_costs(self, epsilon: float) -> None:
        given = mixed_batch()
        features = given.features.detach().double()
        costs = torch.cat(
            [
                reference.squared_distances(features[expert, first], features[expert, second]).flatten()
                for first, second in reference.slots(given.labels, given.domains)
                for expert in range(len(features))
            ]
        )
        relative = given.loss(epsilon=epsilon, epsilon_scale="relative")
        absolute = given.loss(epsilon=epsilon * costs.mean().item(), epsilon_scale="absolute")
        other = given.loss(epsilon=1.1 * epsilon * costs.mean().item(), epsilon_scale="absolute")
        assert_close(relative, absolute, rtol=1e-6)
        assert_close(given.gradient(relative), given.gradient(absolute), rtol=1e-5)
        assert abs(relative.item() - other.item()) > 1e-4 * abs(relative.item())

    def test_relative_epsilon_is_the_default_and_makes_the_loss_quadratic_in_the_scale(self) -> None:
        given = mixed_batch()
        scaled = replace(given, features=given.features * 1000)
        assert_close(scaled.loss(), 1e6 * given.loss(), rtol=1e-5)

    @pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-20, 1e-4, 1e4])
    @pytest.mark.parametrize("discrepancy", ["ot", "mmd"])
    def test_finite_at_every_scale_down_to_identical_features(self, discrepancy: Discrepancy, scale: float) -> None:
        given = mixed_batch()
        scaled = replace(given, features=(given.features.detach() * scale).requires_grad_())
        loss = scaled.loss(discrepancy=discrepancy)
        assert torch.isfinite(loss)
        assert torch.isfinite(scaled.gradient(loss)).all()
        if scale <= 1e-20:
            # Costs below 1e-38 underflow in float32; MMD's kernels are all 1, rounded in their sums.
            assert abs(loss.item()) < (1e-37 if discrepancy == "ot" else 1e-5)


class TestWeightedReduction:
    @pytest.mark.parametrize("discrepancy", ["ot", "mmd"])
    def test_equal_weights_give_the_plain_mean_whatever_their_size(self, discrepancy: Discrepancy) -> None:
        given = mixed_batch()
        even = replace(given, routing=torch.full_like(given.routing, 1 / 3))
        everything = replace(given, routing=torch.ones_like(given.routing))
        mean = everything.loss(discrepancy=discrepancy, slot_weight="product")
        rules: tuple[SlotWeight, ...] = ("sigmoid", "product", "centred")
        for rule in rules:
            loss = even.loss(discrepancy=discrepancy, slot_weight=rule, reduction="weighted")
            assert_close(loss, mean, rtol=1e-6)

    def test_experts_without_any_mass_give_zero(self) -> None:
        given = mixed_batch()
        nothing = replace(given, routing=torch.zeros_like(given.routing))
        loss = nothing.loss(slot_weight="product", reduction="weighted")
        assert loss.item() == 0
        assert not given.gradient(loss).any()

    def test_a_slot_of_which_one_cell_has_no_mass_is_excluded(self) -> None:
        given = batch(torch.zeros(6, dtype=torch.long), torch.arange(3).repeat_interleave(2), experts=1)
        two = given.domains < 2
        routing = torch.where(given.domains == 2, 0.0, 0.5)[:, None]
        loss = replace(given, routing=routing).absolute(slot_weight="product", reduction="sum")
        kept = Batch(given.features[:, two], routing[two], given.labels[two], given.domains[two])
        assert_close(loss, kept.absolute(slot_weight="product", reduction="sum"), rtol=1e-6)
        assert not given.gradient(loss)[:, ~two].any()


class TestDebiased:
    def test_equal_cells_cost_nothing_and_are_not_moved(self) -> None:
        # The order of the examples differs between the cells, but not their distribution.
        points = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
        features = torch.cat([points, points[:, [3, 1, 0, 4, 2]]], 1).requires_grad_()
        domains = torch.arange(2).repeat_interleave(5)
        given = Batch(features, torch.full((10, 2), 0.5), torch.zeros(10, dtype=torch.long), domains)
        options = {"epsilon": 0.5, "iterations": 200}
        biased, debiased = given.loss(**options), given.loss(debiased=True, **options)
        assert biased.item() > 1
        assert abs(debiased.item()) < 1e-5 * biased.item()
        assert given.gradient(debiased).norm() < 1e-4 * given.gradient(biased).norm()

    def test_a_relative_epsilon_is_the_same_in_all_three_terms(self) -> None:
        given = mixed_batch()
        features = given.features.detach().double()
        pairs = [(x[i], x[j]) for i, j in reference.slots(given.labels, given.domains) for x in features]
        mean = torch.cat([reference.squared_distances(x, y).flatten() for x, y in pairs]).mean().item()
        relative = given.loss(debiased=True, epsilon=0.5, iterations=ROUNDS)
        absolute = given.loss(debiased=True, epsilon=0.5 * mean, epsilon_scale="absolute", iterations=ROUNDS)
        assert_close(relative, absolute, rtol=1e-5)
        assert_close(given.gradient(relative), given.gradient(absolute), rtol=1e-4)

    def test_mmd_is_refused(self) -> None:
        with pytest.raises(MessiError, match=r"debiased applies to the discrepancy 'ot' only.* leave debiased off"):
            mixed_batch().loss(discrepancy="mmd", debiased=True)


class TestScaleFree:
    def test_scale_and_place_of_an_expert_do_not_matter(self) -> None:
        given = mixed_batch()
        scales, place = torch.tensor([0.01, 1.0, 300.0])[:, None, None], torch.tensor([5.0, -1.0, 70.0, 0, 2])
        for dtype, rtol in ((torch.float64, 1e-12), (torch.float32, 1e-3)):
            features = given.features.to(dtype)
            moved, expected = scale_free(scales * features + place), scale_free(features)
            assert_close(moved, expected, rtol=rtol)
            losses = [replace(given, features=x).loss(epsilon_scale="absolute") for x in (moved, expected)]
            assert_close(losses[0], losses[1], rtol=rtol)
            assert_close(expected.square().sum(-1).mean(-1), torch.ones(3), rtol=1e-6)

    @pytest.mark.parametrize("debiased", [False, True])
    @pytest.mark.parametrize("epsilon_scale", ["relative", "absolute"])
    def test_shrinking_an_expert_changes_nothing(self, epsilon_scale: str, debiased: bool) -> None:
        given = mixed_batch()
        options = {"epsilon_scale": epsilon_scale, "epsilon": 0.5, "debiased": debiased}

        def along_the_scale(features: Tensor) -> Tensor:
            gradient = given.gradient(replace(given, features=features).loss(**options))
            centred = given.features.detach() - given.features.detach().mean(1, keepdim=True)
            return torch.cosine_similarity(gradient.flatten(1), centred.flatten(1)).abs()

        assert along_the_scale(scale_free(given.features)).max() < 1e-5
        assert along_the_scale(given.features).min() > 0.1

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    @pytest.mark.parametrize("point", [0.0, 0.1, 1e4])
    def test_outputs_without_variance_become_zero_without_a_gradient(self, point: float, dtype: torch.dtype) -> None:
        features = mixed_batch().features.detach().to(dtype)
        features[1] = point
        result = scale_free(features.requires_grad_())
        (gradient,) = torch.autograd.grad((result * torch.randn_like(result)).sum(), features)
        assert not result[1].any()
        assert not gradient[1].any()
        assert gradient.isfinite().all()
        assert gradient[[0, 2]].any(-1).all()
        assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


class TestGradient:
    def test_nothing_flows_into_the_routing(self) -> None:
        given = mixed_batch()
        routing = given.routing.clone().requires_grad_()
        for discrepancy in ("ot", "mmd"):
            loss = replace(given, routing=routing).loss(discrepancy=discrepancy)
            (gradient,) = torch.autograd.grad(loss, routing, materialize_grads=True)
            assert not gradient.any()

    def test_example_without_a_counterpart_gets_no_gradient(self) -> None:
        given = mixed_batch()
        # Index 11 is the only example of class 3.
        gradient = given.gradient(given.loss())
        assert not gradient[:, 11].any()
        assert gradient[:, :11].any(-1).all()

    @pytest.mark.parametrize("discrepancy", ["ot", "mmd"])
    @pytest.mark.parametrize("labels", [[0, 0, 1, 1], [0, 1, 2, 3], []])
    def test_loss_without_slots_is_exactly_zero_with_a_zero_gradient(
        self, labels: list[int], discrepancy: Discrepancy
    ) -> None:
        one_domain = torch.full((len(labels),), 2)
        given = batch(torch.tensor(labels, dtype=torch.long), one_domain)
        loss = given.loss(discrepancy=discrepancy)
        assert loss.item() == 0
        assert loss.shape == ()
        assert not given.gradient(loss).any()

    def test_domains_that_share_no_class_give_zero(self) -> None:
        given = batch(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]))
        assert given.loss().item() == 0


class TestInvariance:
    def test_names_of_classes_and_domains_do_not_matter(self) -> None:
        given = mixed_batch()
        renamed = replace(
            given,
            labels=torch.tensor([1000, -5, 7, 0])[given.labels],
            domains=torch.tensor([40, -2, 7])[given.domains],
        )
        assert_close(renamed.loss(), given.loss(), rtol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
    def test_integers_of_any_width_name_classes_and_domains(self, dtype: torch.dtype) -> None:
        # 200 classes: their cells do not fit into a byte.
        given = batch(torch.arange(200).repeat(2), torch.arange(2).repeat_interleave(200), experts=1)
        narrow = replace(given, labels=given.labels.to(dtype), domains=given.domains.to(dtype))
        assert narrow.loss().item() == given.loss().item()

    @pytest.mark.parametrize("discrepancy", ["ot", "mmd"])
    def test_order_of_the_examples_does_not_matter(self, discrepancy: Discrepancy) -> None:
        given = mixed_batch()
        order = torch.randperm(len(given.labels), generator=torch.Generator().manual_seed(3))
        shuffled = Batch(given.features[:, order], given.routing[order], given.labels[order], given.domains[order])
        loss, other = given.loss(discrepancy=discrepancy), shuffled.loss(discrepancy=discrepancy)
        assert_close(other, loss, rtol=1e-5)
        assert_close(given.gradient(other), given.gradient(loss), rtol=1e-4)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("discrepancy", ["ot", "mmd"])
    def test_half_precision_features_are_computed_in_float32(
        self, discrepancy: Discrepancy, dtype: torch.dtype
    ) -> None:
        given = mixed_batch()
        half = replace(given, features=given.features.detach().to(dtype).requires_grad_())
        loss = half.loss(discrepancy=discrepancy)
        wide = replace(half, features=half.features.float())
        assert loss.dtype == torch.float32
        assert loss.item() == wide.loss(discrepancy=discrepancy).item()
        assert half.gradient(loss).dtype == dtype


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("features", torch.zeros(16, 5)),
        ("routing", torch.zeros(3, 16)),
        ("labels", torch.zeros(15, dtype=torch.long)),
        ("labels", torch.zeros(16, 1, dtype=torch.long)),
        ("domains", torch.zeros(17, dtype=torch.long)),
    ],
)
def test_the_error_for_a_wrong_shape_names_argument_and_shape(name: str, value: Tensor) -> None:
    wrong = replace(mixed_batch(), **{name: value})
    with pytest.raises(MessiError, match=rf"^{name} must have the shape .* has \[{value.shape[0]}"):
        wrong.loss()
