"""The progress of a plan while it is executed: its status in a terminal, or a plain line after each run elsewhere."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from messi.cli.common.output import Terminal, say
from messi.cli.common.plan_status import live_status
from messi.core.text import duration, last_line
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.plan import ENDED, Outcome, Plan
from messi.sweeps.status import PlanWatch


@contextmanager
def plan_progress(plan: Plan, launcher: Launcher) -> Iterator[Callable[[Outcome], None]]:
    """Show the progress of a plan during the block; yield what to call after each run."""
    states = Counter(outcome.state for outcome in plan.outcomes())
    done, total, interactive = sum(states[ended] for ended in ENDED), len(plan.runs), Terminal().is_terminal
    if done:
        say(f"{done} of {total} runs are already finished")
    if left := total - done:
        then = "" if interactive else "; each is reported when it finishes"
        say(f"runs to do: {left}, {launcher.describe(left)}{then}")
    watch = PlanWatch(plan.folder, [run.listed for run in plan.runs])
    try:
        if interactive and left:
            with live_status(watch):
                yield lambda _outcome: None
        else:
            yield EndedRuns(total, done)
    except KeyboardInterrupt:
        say(f"{watch.read().counts['done']} of {total} runs are finished")
        raise


class EndedRuns:
    """Prints a line after each run."""

    def __init__(self, total: int, done: int) -> None:
        self._total, self._done, self._first, self._start = total, done, done, time.monotonic()

    def __call__(self, outcome: Outcome) -> None:
        """Print the result of a run and the estimated time for the others."""
        self._done += 1
        each = (time.monotonic() - self._start) / (self._done - self._first)
        labels = "  ".join(f"{key} {value}" for key, value in outcome.labels.items())
        left = duration(each * (self._total - self._done))
        say(f"[{self._done}/{self._total}, {left} left] {labels}  {_end(outcome)}")


def _end(outcome: Outcome) -> str:
    if outcome.state == "paused":
        return f"paused after step {outcome.run.until}"
    if outcome.state != "done":
        return f"failed: {last_line(outcome.reason)}"
    return "  ".join(f"{domain} {accuracy:.1%}" for domain, accuracy in outcome.result().target.items())
