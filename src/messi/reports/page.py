"""One page that shows what runs did: a single file that needs no network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

from messi.core.errors import MessiError
from messi.core.files import write_text
from messi.reports.album import LEAST_WEIGHT
from messi.reports.calibration import ROLES
from messi.reports.curves import domain_charts, growth_chart, loss_charts, validation_charts
from messi.reports.domains import domain_rows, pictures
from messi.reports.embedding import LOOKS, SIZE
from messi.reports.methods import GROWTH, group_by_method, method_table
from messi.reports.numbers import numbers
from messi.reports.page_frame import render_page
from messi.reports.rendering import environment
from messi.reports.rerun import rerun_command
from messi.reports.runs import FinishedRun, read_run, run_labels
from messi.reports.sections import sections
from messi.reports.settings import settings_table
from messi.reports.summary_text import facts, part_in_words, role_in_words, spread_in_words, summary, title
from messi.reports.tables import percent, result_rows, result_table


def write_report(runs: Sequence[Path], out: Path) -> None:
    """Write a page about one or several finished runs."""
    if not runs:
        raise MessiError("A report needs at least one run folder, but none was given.")
    write_text(out, render([read_run(path) for path in runs]))


def read_whole(path: Path, label: str = "") -> FinishedRun:
    """Read a finished run and all files that a page shows something of, so that a damaged one is told here."""
    run = read_run(path, label)
    values([run])
    return run


def render(runs: Sequence[FinishedRun]) -> str:
    """Return the page as HTML."""
    return render_page(templates(), "page.html", **values(runs))


def templates() -> Environment:
    """Return the templates, with what those about runs call."""
    found = environment()
    found.filters |= {
        "percent": percent,
        "part_in_words": part_in_words,
        "role_in_words": role_in_words,
        "spread_in_words": spread_in_words,
    }
    return found


def values(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Return what the templates about runs show."""
    parts = sections(runs, run_labels(runs))
    return {
        **_of_records(runs),
        "looks": LOOKS,
        "size": SIZE,
        "least_weight": LEAST_WEIGHT,
        "roles": [role for role in ROLES if any(role in found for found in parts["calibration"].runs.values())],
        "diagnosed": any(run.diagnostics for run in runs),
        "numbers": numbers(runs),
        "sections": parts,
    }


def _of_records(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    rows = result_rows(runs)
    growth = growth_chart(runs)
    return {
        "title": title(runs),
        "summary": summary(runs, rows),
        "facts": facts(runs),
        "runs": runs,
        "rows": rows,
        "table": result_table(rows),
        "methods": method_table(runs),
        "domains": domain_rows(runs),
        "growth": growth,
        "growing": list(group_by_method(runs, besides=GROWTH)) if growth else [],
        "validation_curves": validation_charts(runs, rows),
        "domain_curves": domain_charts(runs),
        "losses": loss_charts(runs),
        "examples": pictures(runs),
        "settings": settings_table(runs),
        "commands": [rerun_command(run) for run in runs],
    }
