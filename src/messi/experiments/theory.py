"""Section 3 of the paper: every statement checked exactly on finite distributions.

Claim: adding domains shrinks the set of globally invariant representations and the label information they can contain,
while one representation for each subset of domains preserves it. If a statement requires more than the text states, the
table has a row that does not hold, with a counterexample.
Command: messi reproduce theory
Cost: a few seconds on a CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from messi.experiments.common.base import Experiment
from messi.experiments.theory_claims.global_invariance import global_claims
from messi.experiments.theory_claims.subset_invariance import subset_claims
from messi.experiments.theory_claims.worlds import Claim
from messi.reports.plan_page import Section, Text
from messi.studies.common.results import Results
from messi.sweeps.plan import PlannedRun

_HEADER = ("Statement", "In one sentence", "Holds", "Cases", "Numbers (bits)", "Checked on")


def claims() -> list[Claim]:
    """Check all statements of the section, in the paper's order."""
    return [*global_claims(), *subset_claims()]


def table(claims: Sequence[Claim]) -> str:
    """Return the claims as a table in Markdown."""
    rows = [
        (
            c.name,
            c.statement,
            "yes" if c.holds else "**no**",
            f"{c.cases:,}",
            c.numbers,
            c.check[0].upper() + c.check[1:],
        )
        for c in claims
    ]
    lines = [_HEADER, ("---", "---", "---", "---:", "---", "---"), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


@dataclass(frozen=True, kw_only=True)
class Theory(Experiment):
    """The statements of section 3, checked."""

    title: ClassVar[str] = "The theory of invariance, checked on finite distributions"
    claim: ClassVar[str] = (
        "Globally invariant representations contain less label information the more domains there are; one "
        "representation for each subset of domains preserves it."
    )
    cost: ClassVar[str] = "seconds on a CPU; nothing is trained"
    reduced: ClassVar[str] = ""

    def runs(self) -> list[PlannedRun]:
        """Return no runs: everything is computed directly."""
        return []

    def report(self, results: Results) -> list[Section]:  # noqa: ARG002 (there are none)
        """Return the table of statements."""
        return [Text("theory", table(claims()))]
