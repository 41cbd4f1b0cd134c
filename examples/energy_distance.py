"""Your own method: ERM plus the energy distance between the features of every two domains.

    messi train --data photos --algorithm examples/energy_distance.py --weight 0.3

The file defines a class of the same name with a nested ``Config``, whose fields become options of the command line.
``loss`` returns weighted terms; the engine minimises their sum. All shapes are fixed, so that a GPU can record the step
once and replay it.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from messi import ERM, Batch, Bounds, LogUniform, LossTerms, domain_mean_cross_entropy


class EnergyDistance(ERM):
    """ERM plus the energy distance between the domains' features."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """One option."""

        weight: Annotated[float, Bounds(minimum=0), LogUniform(-2, 1)] = 0.1
        """Weight of the distance."""

    config: Config

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the weighted distance."""
        features = self.encoder(batch.inputs)
        return {
            "cls": domain_mean_cross_entropy(self.classifier(features), batch.labels, batch.domains),
            "energy": self.config.weight * energy_distance(features, batch.domains, self.task.num_domains),
        }


def energy_distance(features: Tensor, domains: Tensor, num_domains: int) -> Tensor:
    """Return the mean over pairs of domains of 2 E|x - y| - E|x - x'| - E|y - y'|: features [B, R], domains [B]."""
    members = (domains == torch.arange(num_domains, device=domains.device)[:, None]).float()
    averaging = members / members.sum(1, keepdim=True).clamp_min(1)
    means = averaging @ torch.cdist(features.float(), features.float()) @ averaging.T
    within = means.diagonal()
    distances = 2 * means - within[:, None] - within[None, :]
    present = members.any(1)
    pairs = (present[:, None] & present[None, :]).triu(1)
    return (distances * pairs).sum() / pairs.sum().clamp_min(1)
