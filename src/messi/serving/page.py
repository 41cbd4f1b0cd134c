"""The pages of the service, self-contained: no script, style, font or picture comes from elsewhere."""

import base64
import functools
import hashlib
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup

from messi.reports.html import environment
from messi.serving.documents import ModelInfo

_SCRIPT = resources.files("messi.serving").joinpath("templates/serve.js").read_text(encoding="utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; connect-src 'self'; img-src blob: data:; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The one script of the page may run, and may send requests to the service only."""


def page(info: ModelInfo) -> str:
    """Return the page on which an image is dropped or a row is pasted."""
    return _render("serve.html", info=info, title=", ".join(info.classes[:3]))


def api_page(description: dict[str, Any]) -> str:
    """Return a readable form of the OpenAPI description."""
    return _render("api.html", api=description, title="API")


def _render(name: str, **values: Any) -> str:
    script = Markup(_SCRIPT if name == "serve.html" else "")  # noqa: S704 (a file of ours)
    return _environment().get_template(name).render(script=script, **values)


@functools.cache
def _environment() -> Environment:
    """Return the templates of the service and, for frame and styles, those of the reports."""
    reports = environment()
    assert reports.loader is not None  # noqa: S101 (for the type checker)
    return reports.overlay(loader=ChoiceLoader([PackageLoader("messi.serving"), reports.loader]))
