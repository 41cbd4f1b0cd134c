"""The tables and figures of an experiment as files: for papers, for spreadsheets, for people."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt

from messi.core.files import write_text
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.experiments.common.base import Experiment, Figure, Section, Text
from messi.experiments.common.featured_runs import CloserLook, look_closer
from messi.experiments.common.results import Results, last_line, source_accuracy, target_accuracy
from messi.reports.paper_tables import Table
from messi.reports.plan_page import PlanPage, Value
from messi.reports.table_csv import as_csv
from messi.reports.table_html import html
from messi.reports.table_latex import latex
from messi.reports.table_markdown import markdown
from messi.sweeps.plan import Outcome


@dataclass(frozen=True)
class Written:
    """What was written, for the terminal."""

    document: str
    """All tables in Markdown."""
    left_out: tuple[str, ...]
    """A line for every run that the closer look was to show, but could not read."""


def default_folder(experiment: Experiment) -> Path:
    """Return where a plan goes when the user does not say."""
    return Path("reproduce") / (f"{experiment.name}-small" if experiment.small else experiment.name)


def write_results(
    experiment: Experiment, outcomes: Sequence[Outcome], folder: Path, *, page: Path | None = None
) -> Written:
    """Write tables and figures in every format, one document and one page.

    They go to the folder of the plan, which the document names as the user gave it; the page may go elsewhere.
    """
    sections = experiment.sections(Results(outcomes))
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for name, text in _files(section).items():
            write_text(tables / name, text)
    command = _command(experiment, folder)
    document = _document(experiment, sections, command)
    write_text(tables / "README.md", document)
    closer = look_closer(outcomes, experiment.compared_with)
    _page(experiment, outcomes, sections, command, closer).write(page or folder / "report.html")
    left_out = (f"left out  {path.name} from the closer look: {why}" for path, why in closer.damaged.items())
    return Written(document, tuple(left_out))


def _page(
    experiment: Experiment,
    outcomes: Sequence[Outcome],
    sections: Sequence[Section],
    command: str,
    closer: CloserLook,
) -> PlanPage:
    states = Counter(outcome.state for outcome in outcomes)
    failed = {outcome.path: last_line(outcome.reason) for outcome in outcomes if outcome.state == "failed"}
    return PlanPage(
        title=experiment.title,
        claim=experiment.claim,
        facts={
            "Runs": ", ".join(f"{number} {state}" for state, number in states.items()) or "none are needed",
            "Reduced": experiment.reduced if experiment.small else "",
            "Trained on": _machines(outcomes),
            "Version": f"messi-dg {version()}",
        },
        parts=[_html(section) for section in sections],
        runs=[_row(outcome, failed | closer.damaged) for outcome in outcomes],
        command=command,
        closer=closer.runs,
        of_many=closer.of_many,
    )


def _machines(outcomes: Sequence[Outcome]) -> str:
    """Name what the finished runs were computed with."""
    found = [RunDir(outcome.path).read_description().environment for outcome in outcomes if outcome.state == "done"]
    return "; ".join(dict.fromkeys(map(_machine, found)))


def _machine(environment: Mapping[str, str]) -> str:
    """Name the GPUs, or say that it was a CPU, where CUDA's version says nothing."""
    gpu = environment.get("gpu", "none")
    device, names = ("CPU", ("torch", "python")) if gpu == "none" else (gpu, ("torch", "cuda", "python"))
    return ", ".join([device, *(f"{name} {environment[name]}" for name in names if name in environment)])


def _document(experiment: Experiment, sections: Sequence[Section], command: str) -> str:
    """Return all tables in Markdown; figures are linked."""
    parts = [f"# {experiment.title}", f"The paper's claim: {experiment.claim}"]
    if experiment.small and experiment.reduced:
        parts.append(f"A reduced version: {experiment.reduced}. Its numbers are not the paper's experiment.")
    parts.append(f"    {command}")
    return "\n\n".join([*parts, *map(_markdown, sections)]) + "\n"


def _markdown(section: Section) -> str:
    if isinstance(section, Table):
        return markdown(section).strip()
    if isinstance(section, Figure):
        return f"![{section.caption}]({section.name}.svg)\n\n{section.caption}"
    return section.markdown.strip()


def _html(section: Section) -> str:
    if isinstance(section, Table):
        return html(section)
    if isinstance(section, Figure):
        caption = f'<figcaption class="caption">{escape(section.caption)}</figcaption>'
        return f'<figure class="scroll">{section.svg}{caption}</figure>'
    words: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(section.markdown)
    boxed = words.replace("<table>", '<div class="scroll"><table class="results prose">')
    return boxed.replace("</table>", "</table></div>")


def _files(section: Section) -> dict[str, str]:
    if isinstance(section, Text):
        return {f"{section.name}.md": section.markdown}
    if isinstance(section, Figure):
        return {f"{section.name}.svg": section.svg}
    renderers = {"md": markdown, "csv": as_csv, "tex": latex, "html": html}
    return {f"{section.name}.{ending}": render(section) for ending, render in renderers.items()}


def _row(outcome: Outcome, reasons: Mapping[Path, str]) -> dict[str, Value]:
    done = outcome.state == "done"
    found: dict[str, Value] = {
        "target %": f"{target_accuracy(outcome):.1f}" if done else None,
        "validation %": f"{source_accuracy(outcome):.1f}" if done else None,
        "step": outcome.result().selected_step if done else None,
        "state": outcome.state,
        **({"reason": reasons.get(outcome.path)} if reasons else {}),
        "folder": outcome.path.name,
    }
    return {**outcome.labels, **found}


def _command(experiment: Experiment, folder: Path) -> str:
    """Return the command that makes the same plan in the same folder, and so goes on with it."""
    default = type(experiment)().to_dict()
    words = ["messi", "reproduce", experiment.name]
    for name, value in experiment.to_dict().items():
        if value != default[name]:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *map(str, values)]
    if folder != default_folder(experiment):
        words += ["--out", str(folder)]
    return shlex.join(words)
