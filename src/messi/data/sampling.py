"""Which examples are in the batch of a step: a function of only the seed and the step.

No random state is saved, and a resumed run draws the same batches. A block of steps is drawn at once, because a
hundred thousand small random draws would take longer than training a small network.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from messi.core.config import OPEN, Bounds, Config, LogUniform, SmallImages
from messi.core.seeding import generator

Sampling = Literal["replacement", "epochs", "class_balanced"]
BLOCK = 64


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Config):
    """How training batches are drawn."""

    batch_per_domain: Annotated[
        int, Bounds(minimum=1, maximum=1_000_000), LogUniform(3, 5.5, base=2), SmallImages(LogUniform(3, 9, base=2))
    ] = OPEN
    """Number of examples per source domain in a batch."""
    domains_per_batch: Annotated[int, Bounds(minimum=1)] | None = OPEN
    """Number of source domains in a batch, at most; drawn again at every step; None: all."""
    sampling: Sampling = OPEN
    """Draw a domain's examples with replacement, in shuffled epochs, or with equal probability per class."""


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Draws the same number of examples from every source domain, or from a few of them at each step."""

    config: SamplingConfig
    members: Sequence[Tensor]
    """The training examples of every source domain."""
    labels: Sequence[Tensor]
    """Their classes."""
    seed: int

    @property
    def _few(self) -> int | None:
        """The number of domains in a batch; None if it has all."""
        number = self.config.domains_per_batch
        return None if number is None or number >= len(self.members) else number

    def block(self, number: int) -> tuple[Tensor, Tensor]:
        """Return examples and source-domain indices of a block of steps: [BLOCK, B] each."""
        random = generator("batch", self.seed, number)
        domains = self._domains(random)
        examples = torch.empty_like(domains)
        for domain in domains.unique().tolist():
            chosen = domains == domain
            examples[chosen] = self.members[domain][self._places(domain, int(chosen.sum()), number, random)]
        return examples, domains

    def _domains(self, random: torch.Generator) -> Tensor:
        everyone = torch.arange(len(self.members))
        if (few := self._few) is None:
            steps = everyone.expand(BLOCK, -1)
        else:
            steps = torch.stack([torch.randperm(len(everyone), generator=random)[:few] for _ in range(BLOCK)])
        return steps.repeat_interleave(self.config.batch_per_domain, dim=1)

    def _places(self, domain: int, number: int, block: int, random: torch.Generator) -> Tensor:
        """Draw examples of one domain for all the steps of a block that use it, one batch after another."""
        size, per_domain = len(self.members[domain]), self.config.batch_per_domain
        if self.config.sampling == "class_balanced":
            return _balanced(self.labels[domain], number, random)
        if self.config.sampling == "replacement":
            return torch.randint(size, (number,), generator=random)
        if self._few is None:
            return self._epochs(domain, block * number, number)
        return torch.cat([_distinct(size, per_domain, random) for _ in range(number // per_domain)])

    def _epochs(self, domain: int, start: int, number: int) -> Tensor:
        """Return a section of the endless sequence of a domain's shuffled epochs."""
        size = len(self.members[domain])
        first, last = start // size, (start + number - 1) // size
        generators = (generator("epoch", self.seed, domain, epoch) for epoch in range(first, last + 1))
        row = torch.cat([torch.randperm(size, generator=random) for random in generators])
        return row[start - first * size :][:number]


def _balanced(labels: Tensor, number: int, random: torch.Generator) -> Tensor:
    """Draw a class of the domain, then one of its examples."""
    order = labels.argsort(stable=True)
    counts = labels.unique(return_counts=True)[1]
    starts = counts.cumsum(0) - counts
    classes = torch.randint(len(counts), (number,), generator=random)
    within = (torch.rand(number, generator=random, dtype=torch.float64) * counts[classes]).long()
    return order[starts[classes] + within]


def _distinct(size: int, number: int, random: torch.Generator) -> Tensor:
    """Draw without replacement, or with replacement if there are too few examples."""
    if size < number:
        return torch.randint(size, (number,), generator=random)
    return torch.randperm(size, generator=random)[:number]
