"""Which examples a run trains on, validates on, and is tested on at the end."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from messi.core.config import OPEN, Bounds, Config
from messi.core.errors import MessiError
from messi.core.records import Role
from messi.core.seeding import generator
from messi.data.examples import Examples

SplitKind = Literal["stratified", "domainbed", "official"]
TargetPart = Literal["all", "in"]


@dataclass(frozen=True, kw_only=True)
class SplitConfig(Config):
    """Which examples are set aside for validation, and which part of the target domain is used for testing."""

    split: SplitKind = OPEN
    """Draw validation data per class, draw it as DomainBed does, or use the official split of the data set."""
    validation_fraction: Annotated[float, Bounds(above=0, maximum=0.9)] = OPEN
    """Fraction of every source domain that is set aside for validation."""
    target_part: TargetPart = OPEN
    """Test on the whole target domain, or on the 80 % that DomainBed calls 'in'."""


@dataclass(frozen=True)
class Split:
    """Indices of examples by role and domain."""

    train: dict[int, Tensor]
    source_val: dict[int, Tensor]
    target: dict[int, Tensor]
    unseen_val: dict[int, Tensor] = field(default_factory=dict)
    source_test: dict[int, Tensor] = field(default_factory=dict)
    target_val: dict[int, Tensor] = field(default_factory=dict)
    """The rest of the target if only a part of it is tested."""

    def of(self, role: Role) -> dict[int, Tensor]:
        """Return the indices by domain in one role."""
        roles: dict[int, Tensor] = getattr(self, role)
        return roles


def make_split(
    examples: Examples,
    targets: Sequence[int],
    config: SplitConfig,
    *,
    sources: Sequence[int] = (),
    seed: int,
    share_small: bool = False,
) -> Split:
    """Return the official split, or hold ``targets`` out and set a fraction of every source domain aside.

    The sources are all other domains unless they are named. With ``share_small``, a source domain that is too small for
    the fraction to be a whole example is trained on and validated on as a whole; otherwise its last example is set
    aside.
    """
    if config.split == "official":
        if targets or sources:
            raise MessiError("split 'official' defines the source domains itself; omit --target and --sources.")
        return official_split(examples)
    if both := {examples.domain_names[domain] for domain in targets if domain in sources}:
        raise MessiError(f"A domain cannot be source and target: {', '.join(sorted(both))}.")
    if not sources:
        sources = [d for d in range(len(examples.domain_names)) if d not in targets]
    if not sources:
        raise MessiError("Every domain is held out as a target; leave at least one to train on.")
    halves = {}
    for domain in (*sources, *targets):
        is_target = domain in targets
        halves[domain] = _divided(
            examples, domain, config, seed, is_target=is_target, share_small=share_small and not is_target
        )
    whole = {d: torch.cat(halves[d]).sort().values for d in targets}
    return Split(
        train={d: halves[d][0] for d in sources},
        source_val={d: halves[d][1] for d in sources},
        target=whole if config.target_part == "all" else {d: halves[d][0] for d in targets},
        target_val={} if config.target_part == "all" else {d: halves[d][1] for d in targets},
    )


def _divided(
    examples: Examples, domain: int, config: SplitConfig, seed: int, *, is_target: bool, share_small: bool
) -> tuple[Tensor, Tensor]:
    """Return the examples of a domain that stay and those that are set aside."""
    members = (examples.domains == domain).nonzero().squeeze(1)
    needed = 1 if share_small or (is_target and config.target_part == "all") else 2
    if len(members) < needed:
        raise _too_few(examples.domain_names[domain], len(members), needed, is_target=is_target)
    held = _held_out(examples.labels[members], config, seed, domain)
    if not held.any():
        if share_small:
            return members, members
        held[-1] = True
    return members[~held], members[held]


def _too_few(name: str, number: int, needed: int, *, is_target: bool) -> MessiError:
    lack = f"domain '{name}' requires at least {needed} examples, but has {number}"
    if is_target:
        return MessiError(f"The target {lack}; add some, or choose another with --target.")
    return MessiError(
        f"The source {lack}: one to train on and one to validate on; add some, hold it out with --target, or name the "
        "other domains with --sources."
    )


def official_split(examples: Examples) -> Split:
    """Use the parts that the data defines: those whose names contain train, val or test.

    Parts of a domain that is trained on belong to the source, those of any other domain are unseen: id_val and val, or
    id_test and test, in WILDS.
    """
    if not examples.parts:
        raise MessiError("split 'official' requires data with official parts; choose --split stratified or domainbed.")
    purposes = [_purpose(part) for part in examples.parts]
    by_role: dict[str, dict[int, list[int]]] = {field.name: {} for field in fields(Split)}
    trained = {d for d, purpose in zip(examples.domains.tolist(), purposes, strict=True) if purpose == "train"}
    for index, (domain, purpose) in enumerate(zip(examples.domains.tolist(), purposes, strict=True)):
        role = _ROLES[purpose, domain in trained]
        by_role[role].setdefault(domain, []).append(index)
    if not trained:
        raise MessiError(f"No official part is called train; available: {', '.join(sorted(set(examples.parts)))}.")
    return Split(**{role: {d: torch.tensor(by[d]) for d in sorted(by)} for role, by in by_role.items()})


_ROLES = {
    ("train", True): "train",
    ("val", True): "source_val",
    ("val", False): "unseen_val",
    ("test", True): "source_test",
    ("test", False): "target",
}


def _purpose(part: str) -> str:
    for purpose in ("train", "val", "test"):
        if purpose in part.lower():
            return purpose
    raise MessiError(f"The official part '{part}' contains none of train, val and test; rename it in the data's table.")


def _held_out(labels: Tensor, config: SplitConfig, seed: int, domain: int) -> Tensor:
    split = domainbed_split if config.split == "domainbed" else stratified_split
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[split(labels, config.validation_fraction, seed, domain)] = True
    return held


def domainbed_split(labels: Tensor, fraction: float, trial_seed: int, domain: int) -> Tensor:
    """Return the indices that DomainBed holds out: the first of a shuffle, regardless of class."""
    keys = list(range(len(labels)))
    np.random.RandomState(seed_hash(trial_seed, domain)).shuffle(keys)  # DomainBed's own generator
    return torch.tensor(keys[: int(len(keys) * fraction)], dtype=torch.long)


def seed_hash(*parts: object) -> int:
    """Return DomainBed's seed for a tuple of values."""
    digest = hashlib.md5(str(parts).encode(), usedforsecurity=False).hexdigest()
    return int(digest, 16) % 2**31


def stratified_split(labels: Tensor, fraction: float, seed: int, domain: int) -> Tensor:
    """Return indices of ``fraction`` of every class, rounded to whole examples, but never all of a class."""
    random = generator("split", seed, domain)
    held = []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().squeeze(1)
        number = min(round(len(members) * fraction), len(members) - 1)
        held.append(members[torch.randperm(len(members), generator=random)[:number]])
    return torch.cat(held)
