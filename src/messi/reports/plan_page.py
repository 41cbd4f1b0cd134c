"""One page of an experiment: its tables and figures, and how every run stands. A single file that needs no network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from messi.core.files import write_text
from messi.reports.page import templates, values
from messi.reports.page_frame import render_page
from messi.reports.runs import FinishedRun

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
    closer: Sequence[FinishedRun]
    """Runs to show in detail."""
    of_many: int
    """How many methods have finished runs, of which they are one each."""

    def write(self, out: Path) -> None:
        """Write the page."""
        page = render_page(
            templates(),
            "plan.html",
            **{
                **(values(self.closer) if self.closer else {}),
                "plan": self,
                "title": self.title,
                "parts": [Markup(part) for part in self.parts],  # noqa: S704
                "runs": self.closer,
            },
        )
        write_text(out, page)
