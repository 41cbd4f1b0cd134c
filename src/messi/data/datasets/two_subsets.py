"""The constructive example of the paper's theorem: four domains, two subsets, each with its own predictive feature.

In domains a1 and a2 the first feature is the label and the second is noise; in b1 and b2 it is the reverse. The
third feature is a style that tells the subsets apart and says nothing of the label: without it the subset, and
with it the label, could not be told from the input at all. Neither feature alone predicts the label in all four
domains, and aligned strongly over all of them neither survives in a linear representation; one expert per subset
keeps both.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from messi.core.config import Bounds
from messi.core.seeding import generator
from messi.data.augment import Augmentation
from messi.data.datasets.common.base import DataConfig
from messi.data.examples import Examples, digest
from messi.data.watcher import Watcher


@dataclass(frozen=True, kw_only=True)
class TwoSubsets(DataConfig):
    """The theorem's four synthetic domains with three features."""

    backbone: ClassVar[str] = "identity"
    augmentation: ClassVar[Augmentation] = "none"

    per_domain: Annotated[int, Bounds(minimum=10)] = 400
    """Examples per domain."""
    data_seed: int = 0
    """Seed of the examples."""

    def load(self, watcher: Watcher | None = None) -> Examples:  # noqa: ARG002 (nothing to tell)
        """Draw the examples."""
        stream = generator("two_subsets", self.data_seed)
        domains = torch.arange(4).repeat_interleave(self.per_domain)
        in_second = domains >= 2
        labels = torch.randint(2, domains.shape, generator=stream)
        sign = 2.0 * labels - 1
        noise = torch.randn(len(domains), generator=stream)
        style = 2.0 * in_second - 1 + 0.1 * torch.randn(len(domains), generator=stream)
        features = torch.stack([torch.where(in_second, noise, sign), torch.where(in_second, sign, noise), style], dim=1)
        return Examples(
            inputs=features,
            labels=labels,
            domains=domains,
            classes=("-1", "+1"),
            domain_names=("a1", "a2", "b1", "b2"),
            fingerprint=digest(features, labels, domains),
        )
