"""The constructive example of the paper's theorem: four domains, two subsets, each with its own predictive feature.

In domains a1 and a2 the first feature is the label and the second is noise; in b1 and b2 it is the reverse. The third
feature is a style that identifies the subset and is independent of the label: without it, the input would determine
neither the subset nor the label. Neither of the first two features predicts the label in all four domains, and under
strong alignment over all domains neither survives in a linear representation. One expert per subset keeps both.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from messi.core.config import Bounds
from messi.core.seeding import generator
from messi.data.augment import Augmentation
from messi.data.datasets.common.base import DataConfig
from messi.data.examples import Examples, digest
from messi.data.progress import DataProgress


@dataclass(frozen=True, kw_only=True)
class TwoSubsets(DataConfig):
    """The theorem's four synthetic domains with three features."""

    backbone: ClassVar[str] = "identity"
    augmentation: ClassVar[Augmentation] = "none"

    per_domain: Annotated[int, Bounds(minimum=10)] = 400
    """Examples per domain."""
    data_seed: int = 0
    """Seed of the examples."""

    def load(self, progress: DataProgress | None = None) -> Examples:  # noqa: ARG002 (nothing to report)
        """Draw the examples."""
        random = generator("two_subsets", self.data_seed)
        domains = torch.arange(4).repeat_interleave(self.per_domain)
        in_second = domains >= 2
        labels = torch.randint(2, domains.shape, generator=random)
        sign = 2.0 * labels - 1
        noise = torch.randn(len(domains), generator=random)
        style = 2.0 * in_second - 1 + 0.1 * torch.randn(len(domains), generator=random)
        features = torch.stack([torch.where(in_second, noise, sign), torch.where(in_second, sign, noise), style], dim=1)
        return Examples(
            inputs=features,
            labels=labels,
            domains=domains,
            classes=("-1", "+1"),
            domain_names=("a1", "a2", "b1", "b2"),
            fingerprint=digest(features, labels, domains),
        )
