"""Which domains to hold out if the user names none: each in turn, one run each."""

import dataclasses
from collections.abc import Sequence

from messi.core.errors import MessiError, unknown_name
from messi.core.text import as_spelled
from messi.engine.config import RunConfig

NONE = "none"
MOST_RUNS = 20


def runs_of(config: RunConfig, domains: Sequence[str]) -> list[RunConfig]:
    """Return the runs of a command: one if targets are named, otherwise one for each domain to hold out."""
    if config.resolved().training.split == "official":
        return [config]
    if config.target == (NONE,) and NONE not in domains:
        return [dataclasses.replace(config, target=())]
    target, sources = (tuple(as_spelled(one, domains) for one in names) for names in (config.target, config.sources))
    config = dataclasses.replace(config, target=target, sources=sources)
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
    """Return the target domains of each run."""
    if len(domains) < 2:
        raise MessiError(
            f"The data has only one domain, '{domains[0]}', so none can be held out; train on it with --target {NONE}."
        )
    targets = config.data.default_targets(domains)
    if len(targets) > MOST_RUNS:
        raise MessiError(
            f"The data has {len(domains)} domains, and holding out each in turn would take as many runs; name the "
            f"domains to hold out with --target, or train on all with --target {NONE}."
        )
    return targets
