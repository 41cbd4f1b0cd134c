"""What to hold out when the user does not say: every domain in turn."""

import dataclasses
from collections.abc import Sequence

from messi.core.errors import MessiError, unknown_name
from messi.engine.config import RunConfig

NONE = "none"
_MOST_RUNS = 20


def runs_of(config: RunConfig, domains: Sequence[str]) -> list[RunConfig]:
    """Return the runs that a command asks for: one for named targets, else one for every domain that is held out."""
    if config.resolved().training.split == "official":
        return [config]
    if config.target == (NONE,) and NONE not in domains:
        return [dataclasses.replace(config, target=())]
    _check(config, domains)
    if config.target:
        return [config]
    if config.sources:
        return [dataclasses.replace(config, target=tuple(name for name in domains if name not in config.sources))]
    return [dataclasses.replace(config, target=target) for target in _in_turn(config, domains)]


def _check(config: RunConfig, domains: Sequence[str]) -> None:
    for name in (*config.target, *config.sources):
        if name not in domains:
            raise unknown_name("domain", name, domains)
    if set(config.target) == set(domains):
        raise MessiError("Every domain is held out as a target; leave at least one to train on.")


def _in_turn(config: RunConfig, domains: Sequence[str]) -> list[tuple[str, ...]]:
    """Return what each of several runs holds out."""
    if len(domains) < 2:
        raise MessiError(
            f"The data has one domain, '{domains[0]}', so none can be held out; train on it with --target {NONE}."
        )
    targets = config.data.default_targets(domains)
    if len(targets) > _MOST_RUNS:
        raise MessiError(
            f"The data has {len(domains)} domains, and to hold out each in turn would be as many runs; name those "
            f"to hold out with --target, or train on all with --target {NONE}."
        )
    return targets
