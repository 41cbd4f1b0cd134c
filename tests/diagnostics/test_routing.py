import math

import pytest
import torch

from messi.diagnostics.routing import (
    RoutingTally,
    dead_rate,
    entropy,
    jensen_shannon,
    load_deviation,
    template_divergence,
)

NAN = float("nan")


def test_tables_and_entropy_of_four_examples_by_hand() -> None:
    routing = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])
    labels, domains = torch.tensor([0, 0, 1, 0]), torch.tensor([0, 0, 0, 1])
    tally = RoutingTally(num_domains=2, num_classes=2, num_experts=2)
    tally.update(routing[:3], labels[:3], domains[:3])
    tally.update(routing[3:], labels[3:], domains[3:])
    tables = tally.result()
    assert tables.entropy == pytest.approx(2 * math.log(2) / 4)
    assert tables.load.tolist() == [0.5, 0.5]
    assert tables.by_domain.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    torch.testing.assert_close(tables.by_class, torch.full((2, 2), 0.5, dtype=torch.float64))
    assert tables.by_domain_and_class[:, 0].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert tables.by_domain_and_class[0, 1].tolist() == [0.5, 0.5]
    assert tables.by_domain_and_class[1, 1].isnan().all()


def test_without_examples_nothing_is_known() -> None:
    tables = RoutingTally(num_domains=2, num_classes=2, num_experts=2).result()
    assert math.isnan(tables.entropy)
    assert tables.load.isnan().all()


def test_batches_of_any_size_give_the_means_of_the_cells() -> None:
    generator = torch.Generator().manual_seed(0)
    routing = torch.rand(50, 3, generator=generator).softmax(-1)
    labels, domains = (torch.randint(size, (50,), generator=generator) for size in (4, 2))
    tally = RoutingTally(num_domains=2, num_classes=4, num_experts=3)
    for rows in torch.arange(50).split(7):
        tally.update(routing[rows], labels[rows], domains[rows])
    tables = tally.result()
    for k in range(2):
        for c in range(4):
            expected = routing[(domains == k) & (labels == c)].double().mean(0)
            torch.testing.assert_close(tables.by_domain_and_class[k, c], expected)
    torch.testing.assert_close(tables.by_domain[1], routing[domains == 1].double().mean(0))
    torch.testing.assert_close(tables.by_class[3], routing[labels == 3].double().mean(0))
    assert tables.entropy == pytest.approx(float(-(routing * routing.log()).sum(-1).mean()), rel=1e-6)


def test_entropy_is_zero_for_one_expert_and_log_m_for_all() -> None:
    assert entropy(torch.tensor([[0.0, 1.0, 0.0]])).item() == 0
    assert entropy(torch.full((6,), 1 / 6)).item() == pytest.approx(math.log(6))


def test_load_deviation_and_dead_rate_by_hand() -> None:
    # Mean 1/4, deviations 3/4, -1/4, -1/4, -1/4: the mean square is 3/16.
    assert load_deviation(torch.tensor([1.0, 0.0, 0.0, 0.0])) == pytest.approx(math.sqrt(3) / 4)
    load = torch.tensor([0.97, 0.0099, 0.01, 0.0101])
    assert dead_rate(load) == 1 / 4
    assert dead_rate(load, threshold=0.02) == 3 / 4


def test_divergence_of_disjoint_distributions_is_log_2_and_of_equal_ones_0() -> None:
    p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert jensen_shannon(p, q).item() == pytest.approx(math.log(2))
    assert jensen_shannon(q, q).item() == 0


def test_domains_that_route_a_class_to_different_experts_by_hand() -> None:
    # Both are (3/4, 1/4) on average with the template (1/2, 1/2): H(3/4, 1/4) - log(2) / 2.
    cells = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    mixed = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert template_divergence(cells) == pytest.approx(mixed - math.log(2) / 2)


def test_a_class_of_only_one_domain_is_ignored() -> None:
    cells = torch.tensor([[[1.0, 0.0], [0.3, 0.7]], [[0.0, 1.0], [NAN, NAN]]])
    assert template_divergence(cells) == pytest.approx(template_divergence(cells[:, :1]))
    assert math.isnan(template_divergence(cells[:, 1:]))
