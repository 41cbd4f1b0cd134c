"""How unlike the training domains an input is, and which of them it is nearest to.

The distance of an input is the mean Euclidean distance of its point to the nearest points of a bank: held-out examples
of the source domains, which the model did not learn by heart. The point of an image is its features at unit length,
that of a row of numbers is the row as the encoder gets it. Among the scores that were tried, these told left-out source
domains from known ones best (``results/novelty``, ``results/novelty_features``).

Legend: N examples of the bank, B inputs, K source domains, D numbers of a point.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from messi.core.records import Share

NEIGHBOURS = 3
ACCEPTED = 0.95
"""The share of held-out examples of the source domains whose distance is within the threshold."""


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How well the warning tells the examples of one unseen domain from those of the source domains."""

    examples: int
    warned: Share
    """The share of its examples beyond the threshold."""
    auroc: Share
    """The probability that an example of it is farther away than a held-out example of the source domains."""


@dataclass(frozen=True, kw_only=True)
class NoveltyQuality:
    """How far to trust the distance of a model; a domain is left out by removing its examples from the bank."""

    accepted: Share = ACCEPTED
    left_out: dict[str, Detection]
    """By source domain that was left out of the bank; the encoder may have been trained on it."""
    target: dict[str, Detection]
    """By target domain, which neither the encoder nor the threshold has seen."""
    nearest_right: Share | None
    """The share of held-out examples whose own domain is named as the nearest, mean over the source domains; None for
    a single domain."""


@dataclass(frozen=True)
class Judgement:
    """The distances of B inputs."""

    distance: Tensor
    """[B]"""
    nearest: Tensor
    """[B] indices of source domains."""


@dataclass(frozen=True)
class Bank:
    """The held-out examples of the source domains that inputs are compared with."""

    points: Tensor
    """[N, D]"""
    domains: Tensor
    """[N] indices of source domains."""

    def judge(self, points: Tensor) -> Judgement:
        """Compare inputs [B, D] with the bank."""
        apart = _distances(points, self.points)
        return Judgement(_nearest(apart), self._by_domain(apart).argmin(1))

    def without_self(self) -> Judgement:
        """Compare every example of the bank with all others."""
        apart = self._apart()
        return Judgement(_nearest(apart), self._by_domain(apart).argmin(1))

    def without(self, domain: int) -> "Bank":
        """Return the bank as if a domain had not been seen."""
        kept = self.domains != domain
        return Bank(self.points[kept], self.domains[kept])

    def threshold(self) -> float:
        """Return the distance within which a share ``ACCEPTED`` of held-out examples are."""
        return float(self.without_self().distance.quantile(ACCEPTED))

    def detection(self, points: Tensor) -> Detection:
        """Measure the warning on points [B, D] of one unseen domain."""
        known, unseen = self.without_self().distance, self.judge(points).distance
        warned = unseen > known.quantile(ACCEPTED)
        return Detection(examples=len(points), warned=float(warned.float().mean()), auroc=auroc(known, unseen))

    def nearest_right(self) -> float | None:
        """Return how often the domain of a held-out example is named as the nearest, mean over the domains."""
        names = self.domains.unique()
        if len(names) < 2:
            return None
        right = (self.without_self().nearest == self.domains).float()
        return float(torch.stack([right[self.domains == name].mean() for name in names]).mean())

    def _apart(self) -> Tensor:
        """Return the distances between the examples of the bank, infinite to themselves: [N, N]."""
        return _distances(self.points, self.points).fill_diagonal_(torch.inf)

    def _by_domain(self, apart: Tensor) -> Tensor:
        """Return the distance to every domain, infinite to those without examples: [B, N] -> [B, K]."""
        members = [self.domains == domain for domain in range(int(self.domains.max()) + 1)]
        return torch.stack([_nearest(apart[:, rows]) for rows in members], dim=1)


def measure(bank: Bank, names: tuple[str, ...], target: dict[str, Tensor]) -> NoveltyQuality:
    """Measure the warning on every source domain in turn, left out of the bank, and on the target domains."""
    several = len(bank.domains.unique()) > 1
    left_out = {
        name: bank.without(domain).detection(bank.points[bank.domains == domain])
        for domain, name in enumerate(names)
        if several and (bank.domains == domain).any()
    }
    return NoveltyQuality(
        left_out=left_out,
        target={name: bank.detection(points) for name, points in target.items()},
        nearest_right=bank.nearest_right(),
    )


def auroc(known: Tensor, unseen: Tensor) -> float:
    """Return the probability that a score of the second set exceeds one of the first; ties count half."""
    ordered = known.sort().values
    below = torch.searchsorted(ordered, unseen, side="left") + torch.searchsorted(ordered, unseen, side="right")
    return float(below.double().mean() / (2 * len(known)))


def _nearest(apart: Tensor) -> Tensor:
    """Return the mean of the smallest finite distances: [B, N] -> [B]; infinite if there are none."""
    nearest = apart.topk(min(NEIGHBOURS, apart.shape[1]), dim=1, largest=False).values
    finite = nearest.isfinite()
    number = finite.sum(1)
    return torch.where(number > 0, torch.where(finite, nearest, 0).sum(1) / number, torch.inf)


def _distances(left: Tensor, right: Tensor) -> Tensor:
    """Return Euclidean distances: [B, D], [N, D] -> [B, N].

    In float64, the square of an absurd number is finite. Without a matrix product, equal rows are exactly 0 apart: most
    rows of a table may have equals in the bank, and then the threshold is 0.
    """
    return torch.cdist(left.double(), right.double(), compute_mode="donot_use_mm_for_euclid_dist")
