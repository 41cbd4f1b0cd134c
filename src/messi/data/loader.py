"""Batches. The batch of a step is a function of the seed and the step alone, so a resumed run sees the same ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from messi.core.batch import Batch, InputSpec
from messi.core.errors import MessiError
from messi.core.records import Role
from messi.core.seeding import derive_seed, generator
from messi.data.datasets._base import Augmentation
from messi.data.preprocess import prepare, prepare_augmented
from messi.data.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Loader:
    """Draws training batches and walks through evaluation data."""

    vault: Vault
    spec: InputSpec
    augmentation: Augmentation
    batch_per_domain: int
    seed: int
    device: torch.device

    def __post_init__(self) -> None:
        if self.augmentation == "domainbed" and (len(self.spec.shape) != 3 or self.spec.shape[0] != 3):
            raise MessiError("augmentation 'domainbed' is for colour images; choose --augmentation none.")

    def batch(self, step: int) -> Batch:
        """Return the training batch of a step: the same number from every source domain, with replacement."""
        stream = generator("batch", self.seed, step)
        chosen = []
        for domain in self.vault.domains("train"):
            members = self.vault.indices("train", domain)
            chosen.append(members[torch.randint(len(members), (self.batch_per_domain,), generator=stream)])
        indices = torch.cat(chosen)
        domains = torch.arange(len(chosen)).repeat_interleave(self.batch_per_domain)
        raw = self.vault.inputs(indices)
        if self.augmentation == "domainbed":
            inputs = prepare_augmented(raw, self.spec, self.device, seed=derive_seed(self.seed, step))
        else:
            inputs = prepare(raw, self.spec, self.device)
        return Batch(
            inputs=inputs,
            labels=self.vault.labels(indices).to(self.device),
            domains=domains.to(self.device),
        )

    def evaluation(self, role: Role, domain: int, *, size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and labels of a domain in a role, in order and without augmentation."""
        for indices in self.vault.indices(role, domain).split(size):
            inputs = prepare(self.vault.inputs(indices), self.spec, self.device)
            yield inputs, self.vault.labels(indices).to(self.device)
