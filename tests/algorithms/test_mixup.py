"""Mixup: partners, mixing weights, and the loss of the mixtures."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.mixup import Mixup, partners
from messi.core.batch import Batch, Task
from messi.discrepancy.domains import membership
from messi.models.encoder import EncoderConfig

RAGGED = torch.tensor([3, 0, 1, 3, 3, 0, 1, 3, 4])
"""Domains of 2, 2, 0, 4 and 1 examples."""


def build(num_domains: int = 3, **settings: float) -> Mixup:
    task = Task(input_shape=(4,), num_classes=3, num_domains=num_domains)
    return Mixup(Mixup.Config(**settings), task=task, encoder=EncoderConfig(backbone="identity"))


def make_batch(domains: Tensor) -> Batch:
    return Batch(inputs=torch.randn(len(domains), 4), labels=torch.randint(3, domains.shape), domains=domains)


def drawn(domains: Tensor, num_domains: int, *, seed: int) -> Tensor:
    torch.manual_seed(seed)
    return partners(domains, membership(domains, num_domains))


class TestPartners:
    def test_the_domains_form_one_cycle(self) -> None:
        for seed in range(20):
            found = drawn(RAGGED, 6, seed=seed)
            following = {(int(RAGGED[index]), int(RAGGED[partner])) for index, partner in enumerate(found)}
            assert len(following) == 4, f"seed {seed}: one for each present domain"
            steps, domain, seen = dict(following), 0, []
            for _ in range(4):
                seen.append(domain)
                domain = steps[domain]
            assert domain == 0, f"seed {seed}"
            assert sorted(seen) == [0, 1, 3, 4], f"seed {seed}"

    def test_the_partner_has_the_same_rank_modulo_the_size_of_its_domain(self) -> None:
        places: dict[int, list[int]] = {}
        for index, domain in enumerate(RAGGED.tolist()):
            places.setdefault(domain, []).append(index)
        for seed in range(20):
            for index, partner in enumerate(drawn(RAGGED, 6, seed=seed).tolist()):
                its_domain = places[int(RAGGED[partner])]
                rank = places[int(RAGGED[index])].index(index)
                assert partner == its_domain[rank % len(its_domain)], f"seed {seed}, example {index}"

    def test_all_cycles_are_drawn_equally_often(self) -> None:
        # Three domains have two cycles; 0 is followed by 1 in one of them.
        domains = torch.arange(3)
        after = [int(drawn(domains, 3, seed=seed)[0]) for seed in range(400)]
        assert 150 < after.count(1) < 250  # five standard deviations
        assert after.count(1) + after.count(2) == 400

    def test_equal_domains_are_matched_one_to_one(self) -> None:
        found = drawn(torch.arange(4).repeat(8)[torch.randperm(32)], 4, seed=0)
        assert sorted(found.tolist()) == list(range(32))

    def test_a_single_domain_is_its_own_partner(self) -> None:
        assert drawn(torch.tensor([1, 1, 1]), 2, seed=0).tolist() == [0, 1, 2]


class TestLoss:
    def test_the_loss_matches_mixed_pairs_of_minibatches(self) -> None:
        """Each domain is mixed with the next one in the cycle: inputs and both losses get the same weight."""
        torch.manual_seed(0)
        algorithm, batch = build(), make_batch(torch.arange(3).repeat(5)[torch.randperm(15)])
        share = torch.tensor([0.9, 0.3, 0.5])
        following = {0: 2, 2: 1, 1: 0}
        expected = torch.zeros(())
        own = [(batch.inputs[batch.domains == k], batch.labels[batch.domains == k]) for k in range(3)]
        partner = torch.empty_like(batch.domains)
        for first, second in following.items():
            (x, y), (other, other_y) = own[first], own[second]
            logits = algorithm.classifier(share[first] * x + (1 - share[first]) * other)
            expected = expected + share[first] * functional.cross_entropy(logits, y) / 3
            expected = expected + (1 - share[first]) * functional.cross_entropy(logits, other_y) / 3
            partner[batch.domains == first] = (batch.domains == second).nonzero()[:, 0]
        members = membership(batch.domains, 3)
        terms = algorithm.mixture_loss(batch, members, partner, share[batch.domains])
        torch.testing.assert_close(terms["cls"], expected)
        assert list(terms) == ["cls"]

    def test_domains_of_different_sizes_have_equal_weight(self) -> None:
        torch.manual_seed(0)
        algorithm, batch = build(num_domains=6), make_batch(RAGGED)
        partner, share = torch.arange(len(RAGGED)), torch.full(RAGGED.shape, 0.4)
        losses = functional.cross_entropy(algorithm.classifier(batch.inputs), batch.labels, reduction="none")
        expected = torch.stack([losses[domain == RAGGED].mean() for domain in (0, 1, 3, 4)]).mean()
        terms = algorithm.mixture_loss(batch, membership(RAGGED, 6), partner, share)
        torch.testing.assert_close(terms["cls"], expected)

    def test_one_domain_is_erm(self) -> None:
        algorithm, batch = build(num_domains=1), make_batch(torch.zeros(6, dtype=torch.long))
        expected = functional.cross_entropy(algorithm.classifier(batch.inputs), batch.labels)
        torch.testing.assert_close(algorithm.loss(batch)["cls"], expected)

    @pytest.mark.parametrize(("alpha", "variance"), [(0.2, 1 / 5.6), (5.0, 1 / 44)])
    def test_one_mixing_weight_per_domain_is_drawn_from_beta(
        self, alpha: float, variance: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Beta(a, a) has the mean 1/2 and the variance 1 / (8 a + 4)."""
        algorithm, batch = build(num_domains=3, alpha=alpha), make_batch(torch.arange(3).repeat(2))
        shares: list[Tensor] = []

        def keep(_batch: Batch, _members: Tensor, _partner: Tensor, share: Tensor) -> dict[str, Tensor]:
            shares.append(share)
            return {}

        monkeypatch.setattr(algorithm, "mixture_loss", keep)
        torch.manual_seed(0)
        for _ in range(2000):
            algorithm.loss(batch)
        drawn_shares = torch.stack(shares)
        assert torch.equal(drawn_shares[:, :3], drawn_shares[:, 3:])
        assert drawn_shares[:, :3].mean().item() == pytest.approx(0.5, abs=0.03)
        assert drawn_shares[:, :3].var().item() == pytest.approx(variance, rel=0.1)
        assert drawn_shares.isfinite().all()

    def test_an_image_has_one_mixing_weight_for_all_its_pixels(self) -> None:
        torch.manual_seed(0)
        task = Task(input_shape=(3, 28, 28), num_classes=2, num_domains=2)
        algorithm = Mixup(Mixup.Config(alpha=1.0), task=task, encoder=EncoderConfig(backbone="tiny_cnn"))
        encoded: list[Tensor] = []

        def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            encoded.extend(inputs)

        algorithm.encoder.register_forward_pre_hook(keep)
        domains = torch.tensor([0, 1, 1, 0])
        flat = domains.float()[:, None, None, None].expand(4, 3, 28, 28)
        algorithm.loss(Batch(inputs=flat, labels=torch.tensor([0, 1, 0, 1]), domains=domains))
        (mixed,) = encoded
        assert torch.equal(mixed, mixed[:, :1, :1, :1].expand_as(mixed))
        assert mixed.unique().numel() == 2, "one weight per domain"


def test_the_default_is_domainbeds() -> None:
    assert Mixup.Config().alpha == 0.2
