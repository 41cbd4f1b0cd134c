"""``messi list``: the recipes, algorithms, data sets, backbones and protocols to choose from."""

import dataclasses
import fnmatch
from typing import Annotated, Literal

import tyro

from messi.algorithms.common.base import ALGORITHMS
from messi.cli.common.options import shown_as
from messi.cli.common.output import Row, print_rows, say
from messi.core.config import searches
from messi.core.errors import MessiError, unknown_name
from messi.core.registry import Registry
from messi.data.datasets.common.base import DATASETS
from messi.engine.protocols import HEAD, HEAD_SCHEDULE, PROTOCOLS
from messi.engine.recipes import DEFAULTS, RECIPES
from messi.engine.training_config import TrainingConfig
from messi.models.encoder import SMALL

Kind = Literal["recipes", "algorithms", "datasets", "backbones", "protocols"]


def main(arguments: list[str]) -> int:
    """Parse and print."""
    return tyro.cli(show, prog="messi list", args=arguments)


def show(
    kind: tyro.conf.Positional[Kind],
    pattern: tyro.conf.Positional[Annotated[str, shown_as("[PATTERN]")]] = "*",
    /,
) -> int:
    """List recipes, algorithms or data sets with their options, backbones, or protocols with their settings.

    Args:
        kind: What to list.
        pattern: Only names that match this pattern, such as 'deit*'.

    """
    if kind == "backbones":
        from messi.models import timm_models  # noqa: PLC0415 (see there)

        names = [*(SMALL if pattern == "*" else ()), *timm_models.names(pattern)]
        if not names:
            raise MessiError(f"No backbone matches '{pattern}'; 'messi list backbones' lists all.")
        say(*names)  # one name per line, for pipes
    elif kind == "protocols":
        print_rows(_protocols())
    elif kind == "recipes":
        print_rows(_recipes(pattern))
    else:
        registry = ALGORITHMS if kind == "algorithms" else DATASETS
        names = fnmatch.filter(registry.names(), pattern)
        if not names:
            raise unknown_name(registry.kind, pattern, registry.names())
        print_rows([row for name in names for row in _describe(registry, name)])
    return 0


def _recipes(pattern: str) -> list[Row]:
    """Return a row for every recipe, with its method and the settings that it states."""
    names = fnmatch.filter(RECIPES, pattern)
    if not names:
        raise unknown_name("recipe", pattern, RECIPES)
    return [
        {
            "name": name,
            "what": f"{RECIPES[name].title} ({DEFAULTS[name]})" if name in DEFAULTS else RECIPES[name].title,
            "algorithm": RECIPES[name].algorithm.name,
            "settings": ", ".join(f"{key} {value}" for key, value in RECIPES[name].settings.items()),
        }
        for name in names
    ]


def _protocols() -> list[Row]:
    """Return a row for every setting, with its value in each protocol and the data sets for which it differs."""
    rows: list[Row] = []
    for setting in TrainingConfig.open_fields():
        if setting == "augmentation":  # depends on the data set, in every protocol
            continue
        row: Row = {"setting": setting}
        for name, protocol in PROTOCOLS.items():
            head = HEAD.filled_from(HEAD_SCHEDULE)
            special = {"small images": protocol.small_images, "features": protocol.features, "tune head": head}
            special |= protocol.by_data
            values = {data: getattr(training, setting) for data, training in special.items()}
            others = [f"{data} {value}" for data, value in values.items() if value is not None]
            row[name] = "; ".join([str(getattr(protocol.default, setting)), *others])
        rows.append({**row, "search range": _training_range(setting)})
    return rows


def _training_range(setting: str) -> str:
    """Return the search range of a setting of training, and that with a small network."""
    large, small = (searches(TrainingConfig, small=kind).get(setting) for kind in (False, True))
    return f"{large}; small images {small or 'not searched'}" if large else ""


def _describe(registry: Registry, name: str) -> list[Row]:
    """Return a row that describes an entry, and one for each of its options."""
    config = registry.config(name)
    what = registry.load(name).__doc__.splitlines()[0]
    ranges = searches(config)
    rows: list[Row] = [{"name": name, "what": what, "default": "", "search range": ""}]
    for field in dataclasses.fields(config):
        default = "required" if field.default is dataclasses.MISSING else str(field.default)
        search = str(ranges.get(field.name, ""))
        rows.append({"name": "", "what": f"  {field.name}", "default": default, "search range": search})
    return rows
