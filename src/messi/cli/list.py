"""``messi list``: what there is to choose from."""

import dataclasses
from typing import Literal

import timm
import tyro

from messi.algorithms._base import ALGORITHMS
from messi.cli.output import Row, print_rows
from messi.core.config import Search, searches
from messi.core.errors import MessiError
from messi.core.registry import Registry
from messi.data.datasets._base import DATASETS
from messi.engine.protocols import PROTOCOLS
from messi.models.encoder import SMALL

Kind = Literal["algorithms", "datasets", "backbones", "protocols"]


def main(arguments: list[str]) -> int:
    """Parse and print."""
    return tyro.cli(show, prog="messi list", args=arguments)


def show(kind: tyro.conf.Positional[Kind], pattern: tyro.conf.Positional[str] = "*", /) -> int:
    """Print the algorithms and data sets with their options and defaults, the backbones, or the protocols.

    Args:
        kind: What to list.
        pattern: For backbones: only those that match, such as 'deit*'.

    """
    if kind == "backbones":
        names = [*SMALL, *timm.list_models()] if pattern == "*" else timm.list_models(pattern)
        if not names:
            raise MessiError(f"No backbone matches '{pattern}'; 'messi list backbones' shows all.")
        print("\n".join(names))  # noqa: T201 (one name a line, for pipes)
    elif kind == "protocols":
        print_rows(_protocols())
    else:
        registry = ALGORITHMS if kind == "algorithms" else DATASETS
        print_rows([_describe(registry, name) for name in registry.names()])
    return 0


def _protocols() -> list[Row]:
    """Return a row for every setting, with what each protocol says of it and for which data it says otherwise."""
    rows: list[Row] = []
    for setting in PROTOCOLS["messi"][""]:
        row: Row = {"setting": setting}
        for name, protocol in PROTOCOLS.items():
            others = [f"{data} {values[setting]}" for data, values in protocol.items() if data and setting in values]
            row[name] = "; ".join([str(protocol[""][setting]), *others])
        rows.append(row)
    return rows


def _describe(registry: Registry, name: str) -> Row:
    cls = registry.load(name)
    config = registry.config(name)
    ranges = searches(config)
    options = ", ".join(_show(field, ranges.get(field.name)) for field in dataclasses.fields(config))
    return {"name": name, "what": cls.__doc__.splitlines()[0], "options": options or "none"}


def _show(field: "dataclasses.Field[object]", search: Search | None) -> str:
    shown = field.name if field.default is dataclasses.MISSING else f"{field.name}={field.default}"
    return f"{shown} ({search})" if search else shown
