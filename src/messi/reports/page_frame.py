"""What every page has around it: its styles and one script, and the promise that nothing else can run."""

import base64
import hashlib
from importlib import resources
from typing import Any

from jinja2 import Environment
from markupsafe import Markup


def render_page(templates: Environment, name: str, **values: Any) -> str:
    """Return a page from a template that extends ``shell.html``."""
    # The page allows this one script by its hash, so that nothing else in it can ever run.
    script = resources.files("messi.reports").joinpath("templates/script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = templates.get_template(name)
    return page.render(script=Markup(script), digest=digest, **values)  # noqa: S704 (a file of ours)
