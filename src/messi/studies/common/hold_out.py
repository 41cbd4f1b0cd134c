"""A data set, and which of its domains are held out together: each in turn, in k groups, or as the user names them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from messi.core.config import Config, field_types, from_text
from messi.core.errors import MessiError, unknown_name
from messi.core.text import as_spelled
from messi.data.datasets.common.base import DataConfig, ImageData
from messi.data.find import find_data
from messi.data.progress import DataProgress
from messi.engine.config import RunConfig
from messi.engine.leave_one_out import MOST_RUNS, NONE, runs_of
from messi.studies.common.methods import name_and_settings

Group = tuple[str, ...]
TOGETHER = "+"
"""Joins the domains of a group."""
_LONGEST = 60
"""Characters of a group's name; a file name has 255."""


@dataclass(frozen=True, kw_only=True)
class Task(Config):
    """A data set, and the groups of its domains that are held out, one group per run."""

    data: DataConfig
    hold_out: tuple[Group, ...]
    """An empty group stands for the official split of the data."""
    sealed: bool = False
    """Whether the held-out domains are the target itself, so that nothing may be chosen by them."""


def find_task(config: RunConfig, hold_out: Sequence[str], progress: DataProgress) -> Task:
    """Return what to hold out of the data of a config: ``hold_out``, its target, or every domain in turn.

    A single group is the target; several are a cross-validation over domains.
    """
    data = config.data
    if config.target == (NONE,):
        raise MessiError("A comparison measures on held-out domains; name a domain with --target, or omit it.")
    if config.target and hold_out:
        raise MessiError("--target names the domains to hold out in every run, and so does --hold-out; use one.")
    official = config.resolved().training.split == "official"
    if official and hold_out:
        raise MessiError("--hold-out cannot be used with the official split of the data; use --split stratified.")
    domains = domain_names(data, progress)
    if hold_out:
        groups = hold_out_groups(hold_out, domains)
    elif not (config.target or official) and len(data.default_targets(domains)) > MOST_RUNS:
        raise MessiError(
            f"The data has {len(domains)} domains, and holding out each in turn would take as many runs of every "
            "method; hold out groups of them with --hold-out 5."
        )
    else:
        groups = tuple(one.target for one in runs_of(config, domains))
    return Task(data=data, hold_out=groups, sealed=bool(config.target) or len(groups) == 1)


def find_data_set(text: str) -> DataConfig:
    """Return the data that "NAME field=value ..." means: a name or a path, and its settings."""
    name, settings = name_and_settings(text)
    data = find_data(name)
    fields = [field.name for field in dataclasses.fields(data)]
    settings = {f"{key}_column" if f"{key}_column" in fields else key: value for key, value in settings.items()}
    for key in settings:
        if key not in fields:
            raise unknown_name(f"setting of the data set {data.name}", key, fields)
    types = field_types(type(data))
    return dataclasses.replace(data, **{key: from_text(types[key], value) for key, value in settings.items()})


def domain_names(data: DataConfig, progress: DataProgress) -> Sequence[str]:
    """Return the names of the domains; listing images is enough, decoding them would take long."""
    found = data.listing(progress) if isinstance(data, ImageData) else data.load(progress)
    return found.domain_names


def hold_out_groups(words: Sequence[str], domains: Sequence[str]) -> tuple[Group, ...]:
    """Return the groups that ``--hold-out`` names: a number of groups, or the domains of each, such as "a+b"."""
    if len(words) == 1 and words[0].isdigit() and words[0] not in domains:
        return k_groups(int(words[0]), domains)
    groups = tuple(_group(word, domains) for word in words)
    named = [name for group in groups for name in group]
    for name in named:
        if name not in domains:
            raise unknown_name("domain", name, domains)
        if named.count(name) > 1:
            raise MessiError(f"The domain '{name}' is held out twice; name it in one group of --hold-out.")
    if any(set(group) == set(domains) for group in groups):
        raise MessiError("A group of --hold-out contains every domain; leave at least one to train on.")
    return groups


def k_groups(number: int, domains: Sequence[str]) -> tuple[Group, ...]:
    """Split domains at random into groups of nearly equal size; the same domains always give the same groups."""
    if not 2 <= number <= len(domains):
        raise MessiError(
            f"--hold-out {number} must be at least 2 and at most the number of domains, which is {len(domains)}."
        )
    order = np.random.default_rng(0).permutation(len(domains))
    parts = sorted(sorted(part) for part in np.array_split(order, number))
    return tuple(tuple(domains[place] for place in part) for part in parts)


def group_labels(groups: Sequence[Group]) -> dict[str, Group]:
    """Return the groups by the name that tables and folders use: their domains, or a number if there are many."""
    joined = [TOGETHER.join(group) or "official split" for group in groups]
    numbered = any(len(name) > _LONGEST for name in joined)
    return {
        f"group {n}" if numbered else name: group
        for n, (name, group) in enumerate(zip(joined, groups, strict=True), start=1)
    }


def _group(word: str, domains: Sequence[str]) -> Group:
    """Return the domains of a group; a domain whose own name has a plus sign may stand alone."""
    known = as_spelled(word, domains) in domains
    return tuple(as_spelled(part, domains) for part in ((word,) if known else word.split(TOGETHER)))
