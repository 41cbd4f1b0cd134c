"""Which examples a run trains on, validates on, and is tested on at the end."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from messi.core.errors import MessiError
from messi.core.records import Role
from messi.core.seeding import derive_seed
from messi.data.examples import Examples

SplitKind = Literal["stratified", "domainbed"]
TargetPart = Literal["all", "in"]


@dataclass(frozen=True)
class Split:
    """Indices of examples by role and domain."""

    train: dict[int, Tensor]
    source_val: dict[int, Tensor]
    target: dict[int, Tensor]

    def of(self, role: Role) -> dict[int, Tensor]:
        """Return the indices by domain in one role."""
        return {"train": self.train, "source_val": self.source_val, "target": self.target}[role]


def make_split(
    examples: Examples,
    targets: Sequence[int],
    *,
    kind: SplitKind,
    fraction: float,
    target_part: TargetPart,
    seed: int,
) -> Split:
    """Hold ``targets`` out and set a fraction of every source domain aside for validation."""
    sources = [d for d in range(len(examples.domain_names)) if d not in targets]
    if not sources:
        raise MessiError("Every domain is held out as a target; leave at least one to train on.")
    halves = {}
    for domain, name in enumerate(examples.domain_names):
        members = (examples.domains == domain).nonzero().squeeze(1)
        if len(members) < 2:
            raise MessiError(f"The domain '{name}' has {len(members)} example; a split needs at least 2.")
        held = _held_out(examples.labels[members], kind, fraction, seed, domain)
        halves[domain] = (members[~held], members[held])
    whole = {d: torch.cat(halves[d]).sort().values for d in targets}
    return Split(
        train={d: halves[d][0] for d in sources},
        source_val={d: halves[d][1] for d in sources},
        target=whole if target_part == "all" else {d: halves[d][0] for d in targets},
    )


def _held_out(labels: Tensor, kind: SplitKind, fraction: float, seed: int, domain: int) -> Tensor:
    split = domainbed_split if kind == "domainbed" else stratified_split
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[split(labels, fraction, seed, domain)] = True
    if not held.any():
        held[-1] = True
    return held


def domainbed_split(labels: Tensor, fraction: float, trial_seed: int, domain: int) -> Tensor:
    """Return the indices that DomainBed holds out: the first of a shuffle, classes not considered."""
    keys = list(range(len(labels)))
    np.random.RandomState(seed_hash(trial_seed, domain)).shuffle(keys)  # DomainBed's own stream
    return torch.tensor(keys[: int(len(keys) * fraction)], dtype=torch.long)


def seed_hash(*parts: object) -> int:
    """Return DomainBed's seed for a tuple of values."""
    digest = hashlib.md5(str(parts).encode(), usedforsecurity=False).hexdigest()
    return int(digest, 16) % 2**31


def stratified_split(labels: Tensor, fraction: float, seed: int, domain: int) -> Tensor:
    """Return the indices of the nearest whole number to ``fraction`` of every class, but never all of a class."""
    stream = torch.Generator().manual_seed(derive_seed("split", seed, domain))
    held = []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().squeeze(1)
        number = min(round(len(members) * fraction), len(members) - 1)
        held.append(members[torch.randperm(len(members), generator=stream)[:number]])
    return torch.cat(held)
