"""Templates that escape every text and refuse a name that nobody set."""

import functools

from jinja2 import Environment, PackageLoader, StrictUndefined


@functools.cache
def environment() -> Environment:
    """Return the reader of the files in ``templates``; one for all pages, which compiles each of them once."""
    return Environment(
        loader=PackageLoader("messi.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
