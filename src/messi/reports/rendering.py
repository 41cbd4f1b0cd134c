"""Templates that escape every text and refuse a name that nobody set."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment() -> Environment:
    """Return the reader of the files in ``templates``."""
    return Environment(
        loader=PackageLoader("messi.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
