"""The tables, figures and texts of a study as files, as one Markdown document and on one self-contained page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from messi.core.files import write_text
from messi.reports.html import environment, render_page
from messi.reports.page import run_values
from messi.reports.runs import FinishedRun
from messi.reports.table import Table
from messi.reports.table_formats import FORMATS, html, markdown


@dataclass(frozen=True)
class Text:
    """Findings in words and simple tables."""

    name: str
    markdown: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Other formats of it, by the name of the file."""


@dataclass(frozen=True)
class Figure:
    """An SVG and its caption."""

    name: str
    caption: str
    svg: str


Section = Table | Figure | Text


@dataclass(frozen=True, kw_only=True)
class PlanPage:
    """The page of a study."""

    title: str
    kicker: str
    """A word or two above the title."""
    lead: str
    """A sentence below the title."""
    facts: Mapping[str, str]
    """Shown at the top, by name."""
    sections: Sequence[Section]
    runs: Table
    """A row for every run."""
    command: str
    """Which repeats the study."""
    featured: Sequence[FinishedRun]
    """Runs to show in detail."""
    methods: int
    """How many methods have finished runs; ``featured`` holds one run each of some of them."""

    def write(self, out: Path) -> None:
        """Write the page."""
        values = {
            **(run_values(self.featured) if self.featured else {}),
            "plan": self,
            "title": self.title,
            "parts": [Markup(section_html(section)) for section in self.sections],  # noqa: S704 (made by templates)
            "runs": self.featured,
        }
        write_text(out, render_page("plan.html", **values))


def section_files(section: Section) -> dict[str, str]:
    """Return the files of a section by name."""
    if isinstance(section, Text):
        return {f"{section.name}.md": section.markdown, **section.files}
    if isinstance(section, Figure):
        return {f"{section.name}.svg": section.svg}
    return {f"{section.name}.{ending}": write(section) for ending, write in FORMATS.items()}


def section_markdown(section: Section) -> str:
    """Return a section as part of a Markdown document; figures are linked."""
    if isinstance(section, Table):
        return markdown(section).strip()
    if isinstance(section, Figure):
        return f"![{section.caption}]({section.name}.svg)\n\n{section.caption}"
    return section.markdown.strip()


def section_html(section: Section) -> str:
    """Return a section as part of a page."""
    if isinstance(section, Table):
        return html(section)
    if isinstance(section, Figure):
        svg = Markup(section.svg)  # noqa: S704 (made by a template)
        return environment().get_template("figure.html").render(svg=svg, caption=section.caption)
    words: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(section.markdown)
    boxed = words.replace("<table>", '<div class="scroll"><table class="results prose">')
    return f'<div class="words">{boxed.replace("</table>", "</table></div>")}</div>'
