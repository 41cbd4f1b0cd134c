"""How unlike the training domains an input is, and which of them it is nearest to.

The distance of an input is the mean cosine distance of its features to the nearest examples of a bank: held-out
examples of the source domains, which the model did not learn by heart. Among the scores that were tried, this one told
left-out source domains from known ones best (``results/novelty``). The cosine ignores lengths, but a row of a table
with an absurd number has long features. So features that are longer than all in the bank are farther away by the
logarithm of the ratio.

Legend: N examples of the bank, B inputs, K source domains, D features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from messi.core.records import Share

NEIGHBOURS = 3
_TINY = 1e-12
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

    features: Tensor
    """[N, D] of length 1."""
    domains: Tensor
    """[N] indices of source domains."""
    longest: float
    """The largest length of the features before they were normalised."""

    @classmethod
    def of(cls, features: Tensor, domains: Tensor) -> "Bank":
        """Return the bank of features of any length."""
        return cls(_unit(features), domains, float(features.float().norm(dim=1).max()))

    def judge(self, features: Tensor) -> Judgement:
        """Compare inputs [B, D] with the bank."""
        apart = 1 - _unit(features) @ self.features.mT
        longer = (features.float().norm(dim=1) / max(self.longest, _TINY)).clamp(min=1).log()
        return Judgement(_nearest(apart) + longer, self._by_domain(apart).argmin(1))

    def without_self(self) -> Judgement:
        """Compare every example of the bank with all others."""
        apart = self._apart()
        return Judgement(_nearest(apart), self._by_domain(apart).argmin(1))

    def without(self, domain: int) -> "Bank":
        """Return the bank as if a domain had not been seen."""
        kept = self.domains != domain
        return Bank(self.features[kept], self.domains[kept], self.longest)

    def threshold(self) -> float:
        """Return the distance within which a share ``ACCEPTED`` of held-out examples are."""
        return float(self.without_self().distance.quantile(ACCEPTED))

    def detection(self, features: Tensor) -> Detection:
        """Measure the warning on features [B, D] of one unseen domain."""
        known, unseen = self.without_self().distance, self.judge(features).distance
        return Detection(
            examples=len(features), warned=float((unseen > self.threshold()).float().mean()), auroc=auroc(known, unseen)
        )

    def nearest_right(self) -> float | None:
        """Return how often the domain of a held-out example is named as the nearest, mean over the domains."""
        names = self.domains.unique()
        if len(names) < 2:
            return None
        right = (self.without_self().nearest == self.domains).float()
        return float(torch.stack([right[self.domains == name].mean() for name in names]).mean())

    def _apart(self) -> Tensor:
        """Return the distances between the examples of the bank, infinite to themselves: [N, N]."""
        return (1 - self.features @ self.features.mT).fill_diagonal_(torch.inf)

    def _by_domain(self, apart: Tensor) -> Tensor:
        """Return the distance to every domain, infinite to those without examples: [B, N] -> [B, K]."""
        members = [self.domains == domain for domain in range(int(self.domains.max()) + 1)]
        return torch.stack([_nearest(apart[:, rows]) for rows in members], dim=1)


def measure(bank: Bank, names: tuple[str, ...], target: dict[str, Tensor]) -> NoveltyQuality:
    """Measure the warning on every source domain in turn, left out of the bank, and on the target domains."""
    several = len(bank.domains.unique()) > 1
    left_out = {
        name: bank.without(domain).detection(bank.longest * bank.features[bank.domains == domain])
        for domain, name in enumerate(names)
        if several and (bank.domains == domain).any()
    }
    return NoveltyQuality(
        left_out=left_out,
        target={name: bank.detection(features) for name, features in target.items()},
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


def _unit(features: Tensor) -> Tensor:
    return functional.normalize(features.float(), dim=1)
