"""The subset-conditioned invariance loss in float32, by kernels and by torch, against float64 on the CPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from messi.core import gpu_kernels
from messi.discrepancy.mmd import BANDWIDTHS
from messi.losses.ssi import kernels, memory_kernels
from messi.losses.ssi import loss as plain
from messi.losses.ssi.memory_kernels import layout_of
from messi.losses.ssi.slot_kernels import find
from messi.losses.ssi.slots import find_slots

from .test_slots import as_lists

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPTIONS: dict[str, Any] = {
    "discrepancy": "ot",
    "slot_weight": "sigmoid",
    "sharpness": 4.0,
    "reduction": "mean",
    "debiased": False,
    "epsilon": 0.1,
    "epsilon_scale": "relative",
    "iterations": 10,
    "bandwidths": BANDWIDTHS,
}

on_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
both_discrepancies = pytest.mark.parametrize("discrepancy", ["ot", "mmd"])


@pytest.fixture(autouse=True)
def scratch_is_nan() -> Iterator[None]:
    """Let torch fill new memory with NaN and huge integers, to detect reads of unwritten memory."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@dataclass(frozen=True)
class Batch:
    features: Tensor
    routing: Tensor
    labels: Tensor
    domains: Tensor

    def to(self, device: str, dtype: torch.dtype | None = None) -> "Batch":
        features = self.features.detach().to(device, dtype).requires_grad_()
        return Batch(features, self.routing.to(device), self.labels.to(device), self.domains.to(device))

    def by_kernels(self, **options: Any) -> tuple[Tensor, Tensor]:
        given = self.to(DEVICE)
        loss = kernels.ssi_loss(
            given.features, given.routing, given.labels, given.domains, **(OPTIONS | options)
        )  # fmt: skip
        (gradient,) = torch.autograd.grad(loss, given.features)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient).all()
        return loss.detach().cpu(), gradient.cpu()

    def by_torch(self, dtype: torch.dtype = torch.float64, **options: Any) -> tuple[Tensor, Tensor]:
        given = self.to("cpu", dtype)
        options = OPTIONS | options
        loss = plain.ssi_loss(given.features, given.routing, given.labels, given.domains, **options)
        (gradient,) = torch.autograd.grad(loss, given.features)
        return loss.detach(), gradient

    def permuted(self, order: Tensor) -> "Batch":
        return Batch(self.features[:, order], self.routing[order], self.labels[order], self.domains[order])


def draw(labels: Tensor, domains: Tensor, *, experts: int = 2, width: int = 5, seed: int = 0) -> Batch:
    """Return standard normal features, with the domains apart by half a standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    shifts = torch.randn(experts, len(domains), width, generator=generator)[:, domains % len(domains)] / 2
    features = torch.randn(experts, len(labels), width, generator=generator) + shifts
    routing = torch.randn(len(labels), experts, generator=generator).mul(2).softmax(-1)
    return Batch(features, routing, labels, domains)


def cells(*sizes: int, **options: Any) -> Batch:
    """Return a batch of one class, with a cell of each size, in random order."""
    domains = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    domains = domains[torch.randperm(len(domains), generator=torch.Generator().manual_seed(1))]
    return draw(torch.zeros_like(domains), domains, **options)


def mixed(classes: int = 2, num_domains: int = 3, examples: int = 15, **options: Any) -> Batch:
    generator = torch.Generator().manual_seed(4)
    labels = torch.randint(classes, (examples,), generator=generator)
    return draw(labels, torch.randint(num_domains, (examples,), generator=generator), **options)


def assert_same(given: Batch, *, gradient_rtol: float = 1e-4, value_atol: float = 0.0, **options: Any) -> None:
    """Compare kernels and torch, both in float32, with torch in float64: the gradient in the Euclidean norm."""
    expected_value, expected = given.by_torch(**options)
    for value, gradient in (given.by_kernels(**options), given.by_torch(torch.float32, **options)):
        assert value.item() == pytest.approx(expected_value.item(), rel=1e-5, abs=value_atol)
        assert (gradient - expected).norm().item() <= gradient_rtol * expected.norm().item()


class TestSlots:
    @staticmethod
    def found(labels: Tensor, domains: Tensor) -> list[tuple[list[int], list[int]]]:
        layout = layout_of.fn(0, len(labels))
        memory = torch.empty(layout.behind, dtype=torch.int32, device=DEVICE)
        find(labels.to(DEVICE), domains.to(DEVICE), memory)
        order, size = memory[layout.order :].tolist(), memory[layout.size :].tolist()
        slots, pairs = memory[layout.counts :][:2].tolist()
        both = zip(memory[layout.first :][:slots].tolist(), memory[layout.second :][:slots].tolist(), strict=True)
        named = [(order[i : i + size[i]], order[j : j + size[j]]) for i, j in both]
        assert pairs == sum(len(first) * len(second) for first, second in named)
        return named

    @pytest.mark.parametrize(
        ("labels", "domains"),
        [
            ([5, 5, 9, 5, 9, 5], [1, 0, 1, 1, 1, 2]),
            ([0] * 7, [2, 0, 1, 0, 2, 2, 1]),
            ([0, 1, 2, 3], [0, 0, 1, 1]),
            ([0] * 9, list(range(9))),
            ([3, 3], [1, 1]),
            ([2], [0]),
            ([2**62, 3, 2**62, 2**40 + 3, -4, -4], [2**50, 0, 7, 2**33, 2**33 + 1, 2**33]),
            ([2**63 - 1, -(2**63), 2**63 - 1, 0, -(2**63)], [-(2**63), 2**63 - 1, 0, 0, -1]),
            ([1, 0, 1, 0], [8, 3, -5, 4]),
            ([2**29, 0, 2**29, 0], [1, 0, 0, 1]),
            ([2**29 - 1, 0, 2**29 - 1, 0], [3, 0, 0, 1]),
            ([-7, -9, -7, -9], [-2, -3, -3, -2]),
        ],
        ids=[
            "unsorted",
            "one class",
            "no slots",
            "single examples",
            "one cell",
            "one example",
            "any integers",
            "first and last integers",
            "more domain numbers than examples",
            "class numbers too large for a key",
            "largest key",
            "negative",
        ],
    )
    def test_slots_match_torch(self, labels: list[int], domains: list[int]) -> None:
        given = torch.tensor(labels), torch.tensor(domains)
        assert self.found(*given) == as_lists(find_slots(*given))

    @pytest.mark.parametrize(("examples", "classes", "num_domains"), [(33, 4, 3), (64, 65, 3), (100, 12, 5)])
    def test_random_slots_match_torch(self, examples: int, classes: int, num_domains: int) -> None:
        given = mixed(classes, num_domains, examples)
        expected = as_lists(find_slots(given.labels, given.domains))
        assert len(expected) > 5
        assert self.found(given.labels, given.domains) == expected
        assert self.found(given.labels * 2**40, given.domains * 2**40) == expected

    @pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
    def test_integers_of_any_width_name_classes_and_domains(self, dtype: torch.dtype) -> None:
        given = mixed()
        narrow = given.labels.to(dtype), given.domains.to(dtype)
        assert self.found(*narrow) == as_lists(find_slots(given.labels, given.domains))


class TestMemory:
    @staticmethod
    def ends(experts: int, batch: int, width: int) -> list[tuple[int, int]]:
        """Return where each part of the memory ends according to its shape, and where the next one begins."""
        layout = layout_of.fn(0, batch)
        scratch = memory_kernels._scratch.fn(layout.behind, experts, batch, width)
        pairs, blocks, lines, tiles = batch * (batch - 1) // 2, -(-width // 128), -(-width // 8) * 8, -(-batch // 16)
        matrix = experts * batch * batch
        sizes = [batch] * 8 + [batch + 1] * 2 + [2, pairs, pairs]
        sizes += [experts * batch * n for n in (1, blocks, width, width, lines)]
        sizes += [
            512,
            max(3 * 512, experts * tiles * tiles),
            max(512, experts * tiles),
            512 * 2 * batch,
            matrix,
            matrix,
        ]
        starts = [*layout[:-1], *scratch]
        return [(start + size, after) for start, size, after in zip(starts, sizes, starts[1:], strict=False)]

    @pytest.mark.parametrize("shape", [(1, 1, 1), (2, 31, 5), (3, 33, 130), (40, 16, 8), (6, 160, 384)], ids=str)
    def test_no_part_overlaps_the_next(self, shape: tuple[int, int, int]) -> None:
        ends = self.ends(*shape)
        assert len(ends) == len(memory_kernels.Layout._fields) + len(memory_kernels.Scratch._fields) - 2
        assert all(end <= after for end, after in ends)
        assert ends[-1][1] == memory_kernels.words(*shape)

    @pytest.mark.parametrize(("discrepancy", "debiased"), [("ot", True), ("mmd", False)])
    def test_nothing_is_written_between_the_parts(
        self, discrepancy: str, debiased: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[Tensor] = []

        def find_and_keep(labels: Tensor, domains: Tensor, memory: Tensor) -> None:
            seen.append(memory)
            find(labels, domains, memory)

        monkeypatch.setattr(kernels, "find", find_and_keep)
        given = cells(3, 19, 1, experts=3)
        given.by_kernels(discrepancy=discrepancy, debiased=debiased)
        untouched = [seen[0][end:after] for end, after in self.ends(*given.features.shape)]
        assert sum(map(len, untouched)) > 100
        assert all((words == 2**31 - 1).all() for words in untouched)


class TestValueAndGradient:
    @pytest.mark.parametrize("reduction", ["mean", "sum", "weighted"])
    @both_discrepancies
    def test_mixed_batch(self, discrepancy: str, reduction: str) -> None:
        assert_same(mixed(width=20), discrepancy=discrepancy, reduction=reduction)

    @both_discrepancies
    def test_one_expert(self, discrepancy: str) -> None:
        assert_same(mixed(experts=1), discrepancy=discrepancy)

    @pytest.mark.parametrize("width", [1, 130, 300])
    @both_discrepancies
    def test_features_in_one_block_or_many(self, discrepancy: str, width: int) -> None:
        assert_same(cells(3, 2, 1, experts=1, width=width), discrepancy=discrepancy, iterations=2)

    @pytest.mark.parametrize("sharpness", [0.0, 20.0])
    @both_discrepancies
    def test_sharpness(self, discrepancy: str, sharpness: float) -> None:
        assert_same(mixed(), discrepancy=discrepancy, sharpness=sharpness, iterations=2)

    @pytest.mark.parametrize("slot_weight", ["product", "centred"])
    @both_discrepancies
    def test_slot_weights(self, discrepancy: str, slot_weight: str) -> None:
        given = mixed(experts=3, examples=9)
        assert_same(given, discrepancy=discrepancy, slot_weight=slot_weight, reduction="weighted", iterations=2)

    def test_totals_of_more_than_one_tile_by_mmd(self) -> None:
        assert_same(mixed(3, 4, 40), discrepancy="mmd", slot_weight="product", reduction="weighted")

    def test_mostly_single_examples(self) -> None:
        assert_same(mixed(classes=12, examples=40, experts=3))

    def test_more_slots_than_programs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernels, "_PROGRAMS", 4)
        assert_same(mixed())

    @pytest.mark.parametrize("bandwidths", [(3.0,), (0.5, 3.0)])
    def test_bandwidths(self, bandwidths: tuple[float, ...]) -> None:
        assert_same(mixed(), discrepancy="mmd", bandwidths=bandwidths)

    @pytest.mark.parametrize("epsilon", [0.3, 5.0])
    def test_absolute_epsilon(self, epsilon: float) -> None:
        # About a thirtieth and a half of the mean cost.
        assert_same(mixed(), epsilon=epsilon, epsilon_scale="absolute")

    @pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1e-1, 1.0, 10.0])
    def test_fifty_rounds_for_every_epsilon(self, epsilon: float) -> None:
        # The exponents of the plan are of size cost / epsilon, and float32 rounds them by 1e-7 of that.
        tolerance = max(1e-4, 1e-6 / epsilon)
        assert_same(cells(6, 8, 5, experts=1, width=16), epsilon=epsilon, iterations=50, gradient_rtol=tolerance)

    @pytest.mark.parametrize("epsilon", [0.02, 0.2])
    @pytest.mark.parametrize("iterations", [1, 2, 3])
    def test_rounds_that_have_not_converged(self, iterations: int, epsilon: float) -> None:
        # The rows of the plan do not have their mass yet, which also changes the gradient within the cells.
        assert_same(mixed(), iterations=iterations, epsilon=epsilon)

    @pytest.mark.parametrize(
        "sizes",
        [
            (1, 1),
            (2, 2),
            (16, 3),
            (5, 17),
            (32, 31),
            (2, 33),
            (64, 40),
            (1, 70),
            (70, 1),
            (65, 2),
            (70, 80),
            (18, 1, 4, 35),
        ],
        ids=str,
    )
    def test_cells_of_every_size(self, sizes: Sequence[int]) -> None:
        assert_same(cells(*sizes, experts=1, width=3), iterations=3)

    @pytest.mark.parametrize("sizes", [(1, 1), (16, 3), (20, 1, 40)], ids=str)
    def test_cells_of_every_size_by_mmd(self, sizes: Sequence[int]) -> None:
        assert_same(cells(*sizes, width=3), discrepancy="mmd")

    def test_clusters_far_from_each_other(self) -> None:
        given = mixed()
        centres = 30 * torch.randn(3, 5, generator=torch.Generator().manual_seed(2))
        assert_same(replace(given, features=given.features + centres[torch.arange(len(given.labels)) % 3]))


class TestDebiased:
    """Values are small differences of transport costs, so their rounding is one of those costs, which are near 10."""

    @pytest.mark.parametrize(
        ("epsilon", "epsilon_scale", "iterations"), [(0.1, "relative", 1), (1.0, "relative", 5), (3.0, "absolute", 5)]
    )
    def test_mixed_batch(self, epsilon: float, epsilon_scale: str, iterations: int) -> None:
        options: dict[str, Any] = {"epsilon": epsilon, "epsilon_scale": epsilon_scale, "iterations": iterations}
        assert_same(mixed(classes=4), debiased=True, slot_weight="product", reduction="weighted", **options)

    @pytest.mark.parametrize("sizes", [(1, 3), (16, 2), (17, 1), (33, 2), (66, 1)], ids=str)
    def test_cells_of_every_size(self, sizes: Sequence[int]) -> None:
        given = cells(*sizes, experts=1, width=3)
        assert_same(given, debiased=True, epsilon=1.0, iterations=3, value_atol=1e-5, gradient_rtol=3e-4)

    def test_cell_without_a_counterpart_gets_no_gradient(self) -> None:
        # Of class 3 there is one domain only, with three examples.
        given = draw(torch.tensor([0, 3, 0, 3, 0, 3]), torch.tensor([0, 1, 1, 1, 1, 1]))
        assert_same(given, debiased=True)
        assert given.by_kernels(debiased=True)[1].any(-1)[0].tolist() == [True, False] * 3

    @pytest.mark.parametrize("epsilon_scale", ["relative", "absolute"])
    def test_batch_without_slots_is_zero(self, epsilon_scale: str) -> None:
        given = draw(torch.tensor([0, 0, 0, 1]), torch.tensor([2, 2, 2, 1]))
        value, gradient = given.by_kernels(debiased=True, epsilon_scale=epsilon_scale)
        assert value.item() == 0
        assert not gradient.any()

    def test_equal_cells_cost_nothing_and_are_not_moved(self) -> None:
        half = cells(5, experts=2)
        order = torch.randperm(5, generator=torch.Generator().manual_seed(5))
        routing, labels = (torch.cat([tensor, tensor[order]]) for tensor in (half.routing, half.labels))
        features = torch.cat([half.features, half.features[:, order]], 1)
        given = Batch(features, routing, labels, torch.arange(2).repeat_interleave(5))
        options = {"epsilon": 1.0, "iterations": 30}
        (biased, _), (debiased, gradient) = (given.by_kernels(debiased=on, **options) for on in (False, True))
        assert abs(debiased.item()) < 1e-5 * biased.item()
        assert gradient.norm() < 1e-4 * given.features.norm() / 5


class TestScales:
    @pytest.mark.parametrize(("scale", "offset"), [(1e4, 0.0), (1.0, 1e4), (1e4, 1e4), (1e-4, 0.0), (1e-4, 1e-2)])
    def test_transport(self, scale: float, offset: float) -> None:
        given = mixed()
        assert_same(replace(given, features=given.features * scale + offset))

    @pytest.mark.parametrize(("scale", "offset"), [(1e4, 0.0), (1.0, 1e4), (1e-4, 0.0)])
    def test_mmd(self, scale: float, offset: float) -> None:
        # Means of kernels of size up to 5 are subtracted, so the rounding is one of numbers of size 10.
        given = mixed()
        assert_same(replace(given, features=given.features * scale + offset), discrepancy="mmd", value_atol=1e-5)

    @pytest.mark.parametrize("point", [0.0, 0.1, 1e4])
    @both_discrepancies
    def test_identical_points_have_zero_cost_and_zero_gradient(self, discrepancy: str, point: float) -> None:
        given = mixed()
        same = replace(given, features=torch.full_like(given.features, point))
        value, gradient = same.by_kernels(discrepancy=discrepancy)
        # MMD subtracts numbers of size 5.
        assert abs(value.item()) <= (1e-12 if discrepancy == "ot" else 1e-5)
        assert not gradient.any()

    @pytest.mark.parametrize("scale", [1e-30, 1e-20])
    @both_discrepancies
    def test_finite_where_costs_are_below_float32(self, discrepancy: str, scale: float) -> None:
        given = mixed()
        value, _ = replace(given, features=given.features * scale).by_kernels(discrepancy=discrepancy)
        assert abs(value.item()) < (1e-37 if discrepancy == "ot" else 1e-5)


class TestLaws:
    @pytest.mark.parametrize(
        ("labels", "domains"), [([0, 0, 1, 1], [2, 2, 2, 2]), ([0, 0, 1, 1], [0, 0, 1, 1]), ([0], [0])]
    )
    @both_discrepancies
    def test_batch_without_slots_is_zero(self, discrepancy: str, labels: list[int], domains: list[int]) -> None:
        value, gradient = draw(torch.tensor(labels), torch.tensor(domains)).by_kernels(discrepancy=discrepancy)
        assert value.shape == ()
        assert value.item() == 0
        assert not gradient.any()

    def test_example_without_a_counterpart_gets_no_gradient(self) -> None:
        given = draw(torch.tensor([0, 3, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 1]))
        _, gradient = given.by_kernels()
        assert gradient.any(-1)[0].tolist() == [True, False, True, False, False]

    @both_discrepancies
    def test_permuted_batch_has_the_permuted_gradient(self, discrepancy: str) -> None:
        given = mixed()
        order = torch.randperm(len(given.labels), generator=torch.Generator().manual_seed(3))
        value, gradient = given.by_kernels(discrepancy=discrepancy)
        permuted_value, permuted_gradient = given.permuted(order).by_kernels(discrepancy=discrepancy)
        assert permuted_value.item() == pytest.approx(value.item(), rel=1e-6)
        assert (permuted_gradient - gradient[:, order]).norm() <= 1e-5 * gradient.norm()

    @both_discrepancies
    def test_same_bits_twice(self, discrepancy: str) -> None:
        first, second = mixed().by_kernels(discrepancy=discrepancy), mixed().by_kernels(discrepancy=discrepancy)
        assert all(map(torch.equal, first, second))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @both_discrepancies
    def test_half_precision_is_computed_in_float32(self, discrepancy: str, dtype: torch.dtype) -> None:
        given = mixed().to("cpu", dtype)
        value, gradient = given.by_kernels(discrepancy=discrepancy)
        wide_value, wide_gradient = given.to("cpu", torch.float32).by_kernels(discrepancy=discrepancy)
        assert value.dtype == torch.float32
        assert torch.equal(value, wide_value)
        assert torch.equal(gradient, wide_gradient.to(dtype))

    def test_features_in_any_memory_order(self) -> None:
        given = mixed()
        turned = replace(given, features=given.features.permute(2, 0, 1).contiguous().permute(1, 2, 0))
        assert not turned.to(DEVICE).features.is_contiguous()
        assert all(map(torch.equal, turned.by_kernels(), given.by_kernels()))

    def test_value_is_the_same_without_a_gradient(self) -> None:
        given, (expected, _) = cells(3, 4).to(DEVICE), cells(3, 4).by_kernels()
        with torch.no_grad():
            loss = kernels.ssi_loss(given.features, given.routing, given.labels, given.domains, **OPTIONS)
        assert not loss.requires_grad
        assert loss.item() == expected.item()

    def test_gradient_scales_with_that_of_the_loss_and_nothing_flows_into_the_routing(self) -> None:
        given, (_, expected) = cells(3, 4).to(DEVICE), cells(3, 4).by_kernels()
        routing = given.routing.clone().requires_grad_()
        loss = kernels.ssi_loss(given.features, routing, given.labels, given.domains, **OPTIONS)
        (-4 * loss).backward()
        assert given.features.grad is not None
        assert torch.equal(given.features.grad.cpu(), -4 * expected)
        assert routing.grad is None


def test_the_public_loss_uses_the_kernels_where_they_run_except_for_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    given = mixed().to(DEVICE)
    monkeypatch.setattr(gpu_kernels, "run_on", lambda _: True)
    loss = plain.ssi_loss(given.features, given.routing, given.labels, given.domains, iterations=10)
    assert loss.item() == given.by_kernels()[0].item()
    assert not plain._has_kernels(given.features.double())


@on_a_gpu
class TestGpu:
    @pytest.mark.parametrize(
        ("classes", "num_domains", "examples"),
        [(7, 3, 96), (65, 3, 96), (345, 5, 160), (1, 3, 256)],
    )
    @both_discrepancies
    def test_batches_of_real_size(self, discrepancy: str, classes: int, num_domains: int, examples: int) -> None:
        given = mixed(classes, num_domains, examples, experts=6, width=384)
        assert_same(given, discrepancy=discrepancy, iterations=50)
        for rule in ("product", "centred"):
            assert_same(given, discrepancy=discrepancy, slot_weight=rule, reduction="weighted", iterations=20)
        if discrepancy == "ot":
            assert_same(given, debiased=True, epsilon=1.0, iterations=20, gradient_rtol=3e-4)

    def test_batch_of_17_domains_with_64_examples(self) -> None:
        domains = torch.arange(17).repeat_interleave(64)
        labels = torch.randint(2, (len(domains),), generator=torch.Generator().manual_seed(0))
        given = draw(labels, domains, experts=6, width=64)
        assert_same(given, iterations=20)
        assert_same(given, debiased=True, epsilon=1.0, iterations=20, gradient_rtol=3e-4)

    def test_the_public_loss_uses_the_kernels(self) -> None:
        given = mixed().to(DEVICE)
        loss = plain.ssi_loss(given.features, given.routing, given.labels, given.domains, iterations=10)
        assert loss.item() == given.by_kernels()[0].item()

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"discrepancy": "mmd"},
            {"debiased": True, "slot_weight": "product", "reduction": "weighted"},
            {"discrepancy": "mmd", "slot_weight": "centred", "reduction": "weighted"},
        ],
        ids=str,
    )
    def test_captured_graph_replays_on_other_batches(self, options: dict[str, Any]) -> None:
        others = [mixed(7, 3, 96, experts=6, width=384), cells(75, 20, 1, experts=6, width=384)]
        kept = mixed(96, 3, 96, experts=6, width=384).to(DEVICE)

        def step() -> tuple[Tensor, Tensor]:
            chosen = OPTIONS | options
            loss = kernels.ssi_loss(kept.features, kept.routing, kept.labels, kept.domains, **chosen)
            return loss.detach(), torch.autograd.grad(loss, kept.features)[0]

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        for other in (*others, others[0]):
            for target, source in zip(vars(kept).values(), vars(other).values(), strict=True):
                target.detach().copy_(source)
            graph.replay()
            expected = other.by_kernels(**options)
            assert all(torch.equal(a.cpu(), b) for a, b in zip(captured, expected, strict=True))
