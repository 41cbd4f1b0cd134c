"""Which finished runs of a plan its page shows in detail."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from messi.core.errors import MessiError
from messi.reports.page import read_whole
from messi.reports.runs import FinishedRun
from messi.sweeps.plan import Outcome

MOST = 6
"""A page with so many stays a few megabytes."""
TASK = ("data", "target", "K", "seed")
"""The labels in which runs of one method differ."""


@dataclass(frozen=True)
class CloserLook:
    """Runs of different methods."""

    runs: Sequence[FinishedRun]
    damaged: dict[Path, str]
    """Why others that were chosen are not among them, by folder."""
    of_many: int
    """How many methods have finished runs."""


def look_closer(outcomes: Sequence[Outcome], compared_with: str) -> CloserLook:
    """Read a run of the method that others are compared with and of the last of the others, the very last first."""
    done = [outcome for outcome in outcomes if outcome.state == "done"]
    methods = list(dict.fromkeys(_words(outcome, of_task=False) for outcome in done))
    others = [method for method in reversed(methods) if method != compared_with]
    chosen = [*(method for method in methods if method == compared_with), *others][:MOST]
    runs: list[FinishedRun] = []
    damaged: dict[Path, str] = {}
    for method, outcome in _on_one_task(done, chosen).items():
        try:
            runs.append(read_whole(outcome.path, method))
        except MessiError as error:
            damaged[outcome.path] = str(error)
    return CloserLook(runs, damaged, len(methods))


def _on_one_task(done: Sequence[Outcome], methods: Sequence[str]) -> dict[str, Outcome]:
    """Return their runs on the last target, seed and number of domains that all have finished, or each one's last."""
    by_task: dict[str, dict[str, Outcome]] = {}
    for outcome in done:
        by_task.setdefault(_words(outcome, of_task=True), {})[_words(outcome, of_task=False)] = outcome
    shared = [found for found in by_task.values() if found.keys() >= set(methods)]
    chosen = shared[-1] if shared else {_words(outcome, of_task=False): outcome for outcome in done}
    return {method: chosen[method] for method in methods}


def _words(outcome: Outcome, *, of_task: bool) -> str:
    """Name the task of a run, or its method."""
    return ", ".join(str(value) for name, value in outcome.labels.items() if (name in TASK) == of_task)
