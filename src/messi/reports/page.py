"""The report page of finished runs: one self-contained file that needs no network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from messi.core.errors import MessiError
from messi.core.files import write_text
from messi.reports.averaged_runs import averaged_table
from messi.reports.calibration import TITLES, reliability_chart
from messi.reports.class_scores import EXPLANATION, class_scores_table
from messi.reports.curves import domain_charts, growth_chart, loss_charts, validation_charts
from messi.reports.diagnostics import Section, sections
from messi.reports.embedding import LOOKS, SIZE
from messi.reports.html import render_page
from messi.reports.measures import measures_table
from messi.reports.pictures import LEAST_WEIGHT, pictures
from messi.reports.rerun import rerun_command
from messi.reports.result_tables import (
    GROWTH,
    ROLES,
    domains_table,
    group_by_method,
    method_results,
    methods_table,
    result_rows,
    runs_table,
)
from messi.reports.runs import FinishedRun, read_run, run_labels
from messi.reports.settings import compare_settings
from messi.reports.summary_text import TARGET_PARTS, facts, summary, title


def write_report(runs: Sequence[Path], out: Path) -> None:
    """Write a page about one or several finished runs."""
    if not runs:
        raise MessiError("A report needs at least one run folder, but none was given.")
    write_text(out, render_page("page.html", **run_values([read_run(path) for path in runs])))


def read_for_page(path: Path, label: str = "") -> FinishedRun:
    """Read a finished run and everything that a page shows of it, so that damage is reported for this run alone."""
    run = read_run(path, label)
    run_values([run])
    return run


def run_values(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Return what the templates show of runs."""
    labels = run_labels(runs)
    parts = sections(runs, labels)
    return {
        **_of_records(runs),
        "looks": LOOKS,
        "size": SIZE,
        "least_weight": LEAST_WEIGHT,
        "roles": ROLES,
        "target_parts": TARGET_PARTS,
        "diagnosed": any(run.diagnostics for run in runs),
        "measures": measures_table(runs, labels),
        "sections": parts,
        "reliabilities": _reliabilities(parts["calibration"], labels),
    }


def _of_records(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    rows = result_rows(runs)
    growth = growth_chart(runs)
    methods = method_results(runs)
    return {
        "title": title(runs),
        "summary": summary(runs, rows),
        "facts": facts(runs),
        "runs": runs,
        "rows": rows,
        "runs_table": runs_table(rows),
        "methods_table": methods_table(methods) if methods else None,
        "several_targets": bool(methods and len(methods.targets) > 1),
        "domains_table": domains_table(runs),
        "class_scores_table": class_scores_table(runs),
        "class_scores_explanation": EXPLANATION,
        "growth": growth,
        "growing": list(group_by_method(runs, ignoring=GROWTH)) if growth else [],
        "validation_curves": validation_charts(runs, rows),
        "domain_curves": domain_charts(runs),
        "losses": loss_charts(runs),
        "examples": pictures(runs),
        "averaged_tables": {place: table for place, run in enumerate(runs) if (table := averaged_table(run))},
        "settings": compare_settings(runs),
        "commands": [rerun_command(run) for run in runs],
    }


def _reliabilities(calibration: Section, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return a chart and its legend for every role."""
    found = []
    for role in TITLES:
        by_run = {place: parts[role] for place, parts in calibration.runs.items() if role in parts}
        if by_run:
            found.append({"chart": reliability_chart(role, by_run, dict(enumerate(labels))), "runs": by_run})
    return found
