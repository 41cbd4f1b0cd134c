"""Mixup between domains: mix images of two domains, and their labels (Zhang et al., 2018; Xu et al., 2020).

Legend: B examples, K domains.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.distributions import Beta
from torch.nn import functional

from messi.algorithms.erm import ERM
from messi.core.batch import Batch, LossTerms
from messi.core.config import Bounds, LogUniform
from messi.discrepancy.domains import membership, ranks
from messi.losses.by_domain import domain_means, mean_of_present


class Mixup(ERM):
    """ERM on mixtures of images from two domains."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """DomainBed's defaults."""

        alpha: Annotated[float, Bounds(above=0), LogUniform(-1, 1)] = 0.2
        """Mixing weights are drawn from Beta(alpha, alpha): below 1, one of the two images dominates."""

    config: Config
    whole_inputs: ClassVar[bool] = True  # mixes them

    def loss(self, batch: Batch) -> LossTerms:
        """Return the cross-entropy of the mixtures with both labels, weighted like the images."""
        members = membership(batch.domains, self.task.num_domains)
        partner = partners(batch.domains, members)
        alpha = torch.full((self.task.num_domains,), self.config.alpha, device=batch.domains.device)
        share = Beta(alpha, alpha, validate_args=False).sample()[batch.domains]
        return self.mixture_loss(batch, members, partner, share)

    def mixture_loss(self, batch: Batch, members: Tensor, partner: Tensor, share: Tensor) -> LossTerms:
        """Return the loss of images mixed with their ``partner`` [B], keeping ``share`` [B] of each; members [K, B]."""
        shape = (-1, *[1] * (batch.inputs.dim() - 1))
        mixtures = torch.lerp(batch.inputs[partner], batch.inputs, share.view(shape).to(batch.inputs.dtype))
        logits = self.classifier(self.encoder(mixtures)).float()
        own = functional.cross_entropy(logits, batch.labels, reduction="none")
        other = functional.cross_entropy(logits, batch.labels[partner], reduction="none")
        losses = share * own + (1 - share) * other
        return {"cls": mean_of_present(domain_means(losses, members), members.any(1))}


def partners(domains: Tensor, members: Tensor) -> Tensor:
    """Return an example of another domain for each example: domains [B], members [K, B] -> [B] indices into the batch.

    The present domains are arranged in a random circle. The partner is the example of the same rank in the next domain,
    modulo that domain's size. With a single domain every example is its own partner.
    """
    counts = members.sum(1)
    circle = torch.where(counts > 0, torch.rand(len(counts), device=domains.device), 2).argsort()  # absent ones last
    place = circle.argsort()
    following = circle[(place + 1) % (counts > 0).sum()][domains]
    first = counts.cumsum(0) - counts
    by_domain = domains.argsort(stable=True)
    return by_domain[first[following] + ranks(members) % counts[following]]
