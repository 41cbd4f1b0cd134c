"""Writes what a study found: tables and figures as files, one Markdown document and one page."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from messi.core.errors import MessiError
from messi.core.files import write_text
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.core.text import last_line
from messi.reports.page import read_for_page
from messi.reports.plan_page import PlanPage, Section, section_files, section_markdown
from messi.reports.runs import FinishedRun
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Row, Table
from messi.studies.common.base import Study
from messi.studies.common.measuring import measure
from messi.studies.common.results import Results, source_accuracy, target_accuracy
from messi.sweeps.plan import Outcome

MOST_FEATURED = 6
"""Runs shown in detail; a page with so many has a few megabytes."""
MOST_LISTED = 1000
"""Rows in the table of all runs; a browser becomes slow with many more."""
_TASK = ("data", "target", "K", "draw", "seed")
"""The labels in which runs of one method differ."""


@dataclass(frozen=True)
class Written:
    """What was written, for the terminal."""

    document: str
    """All tables in Markdown."""
    left_out: tuple[str, ...]
    """A line for every run that was to be shown in detail but could not be read."""


@dataclass(frozen=True)
class Featured:
    """The runs that a page shows in detail, one per method."""

    runs: Sequence[FinishedRun]
    damaged: dict[Path, str]
    """Why chosen runs are missing, by folder."""
    methods: int
    """How many methods have finished runs."""


def write_results(study: Study, outcomes: Sequence[Outcome], folder: Path, *, page: Path | None = None) -> Written:
    """Measure models if the study requires it, then write tables and figures in every format and the page.

    Files go to the folder of the plan, which the document names as the user gave it; the page may go elsewhere.
    """
    results = Results(outcomes)
    if study.measurement:
        results = measure(results, study.measurement)
    sections = study.report(results)
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for name, text in section_files(section).items():
            write_text(tables / name, text)
    command = study.command(folder)
    document = _document(study, sections, command)
    write_text(tables / "README.md", document)
    featured = featured_runs(study.featured(results), study.compared_with)
    _page(study, outcomes, sections, command, featured).write(page or folder / "report.html")
    left_out = (f"left out  {path.name} from the runs in detail: {why}" for path, why in featured.damaged.items())
    return Written(document, tuple(left_out))


def featured_runs(outcomes: Sequence[Outcome], compared_with: str) -> Featured:
    """Read one run of the method that others are compared with, and of the last other methods in reverse order."""
    done = [outcome for outcome in outcomes if outcome.state == "done"]
    methods = list(dict.fromkeys(_labels(outcome, of_task=False) for outcome in done))
    others = [method for method in reversed(methods) if method != compared_with]
    chosen = [*(method for method in methods if method == compared_with), *others][:MOST_FEATURED]
    runs: list[FinishedRun] = []
    damaged: dict[Path, str] = {}
    for method, outcome in _on_one_task(done, chosen).items():
        try:
            runs.append(read_for_page(outcome.path, method))
        except MessiError as error:
            damaged[outcome.path] = str(error)
    return Featured(runs, damaged, len(methods))


def _on_one_task(done: Sequence[Outcome], methods: Sequence[str]) -> dict[str, Outcome]:
    """Return the runs on the last target, seed and number of domains that all methods finished, or each one's last."""
    by_task: dict[str, dict[str, Outcome]] = {}
    for outcome in done:
        by_task.setdefault(_labels(outcome, of_task=True), {})[_labels(outcome, of_task=False)] = outcome
    shared = [found for found in by_task.values() if found.keys() >= set(methods)]
    chosen = shared[-1] if shared else {_labels(outcome, of_task=False): outcome for outcome in done}
    return {method: chosen[method] for method in methods}


def _labels(outcome: Outcome, *, of_task: bool) -> str:
    """Name the task of a run, or its method."""
    return ", ".join(str(value) for name, value in outcome.labels.items() if (name in _TASK) == of_task)


def _page(
    study: Study,
    outcomes: Sequence[Outcome],
    sections: Sequence[Section],
    command: Sequence[str],
    featured: Featured,
) -> PlanPage:
    states = Counter(outcome.state for outcome in outcomes)
    failed = {outcome.path: last_line(outcome.reason) for outcome in outcomes if outcome.state == "failed"}
    return PlanPage(
        title=study.title,
        lead=study.lead,
        facts={
            "Runs": ", ".join(f"{number} {state}" for state, number in states.items()) or "none required",
            **study.notes,
            "Trained on": _machines(outcomes),
            "Version": f"messi-dg {version()}",
        },
        sections=sections,
        runs=_runs_table(outcomes, failed | featured.damaged),
        kicker=shlex.join(command[:2]),
        command=shlex.join(command),
        featured=featured.runs,
        methods=featured.methods,
    )


def _machines(outcomes: Sequence[Outcome]) -> str:
    """Name the machines of the finished runs."""
    found = [RunDir(outcome.path).read_description().environment for outcome in outcomes if outcome.state == "done"]
    return "; ".join(dict.fromkeys(map(_machine, found)))


def _machine(environment: Mapping[str, str]) -> str:
    """Name the GPU, or the CPU without the version of CUDA, which does not matter there."""
    gpu = environment.get("gpu", "none")
    device, names = ("CPU", ("torch", "python")) if gpu == "none" else (gpu, ("torch", "cuda", "python"))
    return ", ".join([device, *(f"{name} {environment[name]}" for name in names if name in environment)])


def _document(study: Study, sections: Sequence[Section], command: Sequence[str]) -> str:
    notes = [f"{name}: {text}." for name, text in study.notes.items()]
    parts = [f"# {study.title}", study.lead, *notes, f"    {shlex.join(command)}"]
    return "\n\n".join([*parts, *map(section_markdown, sections)]) + "\n"


def _runs_table(outcomes: Sequence[Outcome], reasons: Mapping[Path, str]) -> Table:
    """Return the state and the result of every run; the labels of runs are the heads."""
    names = ("target %", "validation %", "step", "state", *(["reason"] if reasons else []), "folder")
    explanation = ""
    if len(outcomes) > MOST_LISTED:
        explanation = f"{MOST_LISTED:,} of {len(outcomes):,} runs; those that are not done come first."
        outcomes = sorted(outcomes, key=lambda outcome: outcome.state == "done")[:MOST_LISTED]
    return Table(
        name="all runs",
        explanation=explanation,
        heads=tuple(outcomes[0].labels) if outcomes else (),
        columns=tuple(Column(name, "none", 0 if name == "step" else 1) for name in names),
        groups=(tuple(_run_row(outcome, reasons) for outcome in outcomes),),
    )


def _run_row(outcome: Outcome, reasons: Mapping[Path, str]) -> Row:
    numbers = [Cell()] * 3
    if outcome.state == "done":
        values = (target_accuracy(outcome), source_accuracy(outcome))
        step = Cell(Summary(outcome.result().selected_step, None, 1))
        averaged = bool(outcome.result().averaged_runs)
        numbers = [*(Cell(Summary(value, None, 1)) for value in values), Cell() if averaged else step]
    reason = [Cell(text=reasons.get(outcome.path, ""))] if reasons else []
    cells = (*numbers, Cell(text=outcome.state), *reason, Cell(text=outcome.path.name))
    return Row(tuple(map(str, outcome.labels.values())), cells)
