"""One page of an experiment: its tables and figures, and how every run stands. A single file that needs no network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from messi.core.files import write_text
from messi.reports.rendering import environment
from messi.reports.shell import render_page

Value = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class PlanPage:
    """What is on the page."""

    title: str
    claim: str
    facts: Mapping[str, str]
    """Shown at the top, by name."""
    parts: Sequence[str]
    """Tables and figures, as HTML that their renderers have made safe."""
    runs: Sequence[Mapping[str, Value]]
    """A row for every run; all have the same keys."""
    command: str

    def write(self, out: Path) -> None:
        """Write the page."""
        page = render_page(
            environment(),
            "plan.html",
            title=self.title,
            claim=self.claim,
            facts=self.facts,
            parts=[Markup(part) for part in self.parts],  # noqa: S704
            heads=list(self.runs[0]) if self.runs else [],
            runs=[list(run.values()) for run in self.runs],
            command=self.command,
        )
        write_text(out, page)
