"""Run folders written by hand instead of by training."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from messi.core.documents import write_document
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.reports.plan_page import Section
from messi.reports.table import Cell, Table
from messi.studies.common.base import Study
from messi.studies.common.measuring import measure
from messi.studies.common.results import Results
from messi.sweeps.plan import Label, Plan, Planned

Made = Callable[[Mapping[str, Label]], "dict[str, Any] | str | None"]
"""By labels: the files of a finished run by name, why it failed, "started", or None for a waiting run."""

_RESULT = {
    "selection": "source_val",
    "validation": "source_val",
    "selected_step": 1,
    "target_part": "all",
    "protocol": "messi",
}

_DIAGNOSTICS: dict[str, dict[str, Any]] = {
    "routing": {
        "entropy": None,
        "load": [],
        "load_std": None,
        "dead_threshold": 0.01,
        "dead_rate": 0.0,
        "template_divergence": None,
        "by_class": [],
    },
    "similarity": {"cosine": [], "mean_off_diagonal": None, "effective_rank": None},
}


def _completed(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """Add the required fields that a test does not set."""
    if name == "result":
        return {**_RESULT, **content}
    if name != "diagnostics":
        return content
    parts = {part: {**given, **content[part]} for part, given in _DIAGNOSTICS.items() if part in content}
    calibration = {role: {"bins": [], **found} for role, found in content.get("calibration", {}).items()}
    return {**content, **parts, **({"calibration": calibration} if calibration else {})}


def made_results(folder: Path, study: Study, made: Made) -> Results:
    """Write the files of every run of a study, and read them as a plan does."""
    plan = Plan(folder, study.runs())
    for run in plan.runs:
        what = made(run.labels)
        if isinstance(what, dict):
            _begin(plan, run)
            for name, content in what.items():
                write_document(plan.path(run) / f"{name}.json", _completed(name, content))
        elif what == "started":
            _begin(plan, run)
        elif what:
            plan.note_failure(run, what)
    return Results(plan.outcomes())


def reported(study: Study, results: Results) -> list[Section]:
    """Measure the models if the study requires it, then report, as ``write_results`` does."""
    return study.report(measure(results, study.measurement) if study.measurement else results)


def _begin(plan: Plan, run: Planned) -> None:
    place = RunDir(plan.path(run))
    place.path.mkdir(parents=True)
    machine = {"gpu": "a GPU", "torch": "2.0"}
    about = {"data": "fingerprint", "classes": ["c"], "sources": ["s"], "target": ["t"], "environment": machine}
    config = run.config.resolved().to_dict()
    write_document(place.description, {"config": config, "version": version(), **about})


def cell_of(table: Table, column: str, *heads: str) -> Cell:
    """Return the cell in a named column of the row that starts with the given heads."""
    (row,) = [row for row in table.rows if row.heads[: len(heads)] == heads]
    return row.cells[[c.name for c in table.columns].index(column)]
