"""Turns the files in ``templates`` into HTML: every text is escaped, and a page can run one known script only."""

import base64
import functools
import hashlib
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from messi.reports.number_format import percent
from messi.reports.table import ARROWS


@functools.cache
def environment() -> Environment:
    """Return the templates, each compiled once; an undefined name raises."""
    found = Environment(
        loader=PackageLoader("messi.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["percent"] = percent
    found.globals["arrows"] = ARROWS
    return found


def render_page(name: str, **values: Any) -> str:
    """Return a page from a template that extends ``page_frame.html``."""
    # The page allows this one script by its hash, so nothing else in it can run.
    script = resources.files("messi.reports").joinpath("templates/script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment().get_template(name)
    return page.render(script=Markup(script), digest=digest, **values)  # noqa: S704 (a file of ours)
