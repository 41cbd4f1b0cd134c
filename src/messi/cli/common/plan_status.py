"""The status of a plan in words, once or refreshed in a terminal. Nothing here loads torch."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.text import Text

from messi.cli.common.output import Terminal
from messi.core.text import duration, last_line, pace, printable
from messi.sweeps.status import UNFINISHED, Activity, PlanStatus, PlanWatch, RunStatus

_ORDER: tuple[Activity, ...] = ("done", "paused", "running", "stopped", "failed", "waiting")
_MOST = 20
"""Runs listed in each state."""
_INTERVAL = 2.0
"""Seconds between two refreshes of a terminal."""


@contextmanager
def live_status(watch: PlanWatch) -> Iterator[None]:
    """Show and refresh the status of a plan in the terminal during the block; the last one stays."""

    def show() -> Text:
        return Text("\n".join(map(printable, status_lines(watch.read()))), no_wrap=True, overflow="ellipsis")

    with Live(console=Terminal(), get_renderable=show, refresh_per_second=1 / _INTERVAL) as live:
        live.refresh()
        yield


def status_lines(status: PlanStatus) -> list[str]:
    """Return the status of a plan in words: counts, rate, time left, best run, then the runs that need attention."""
    counts = ", ".join(f"{status.counts[activity]:,} {activity}" for activity in _ORDER if status.counts[activity])
    lines = [f"runs     {len(status.runs):,}: {counts or 'none'}", *_rate(status)]
    if best := status.best:
        lines.append(f"best     validation {best.validation:.1%} on the source domains: {_labels(best)}")
    running, stopped, failed = (status.of(activity) for activity in ("running", "stopped", "failed"))
    lines += _listed("running", [f"{_labels(run)}: {_progress(run, status.now)}" for run in running])
    lines += _listed("stopped", [f"{_labels(run)}: {_progress(run, status.now)}, no process" for run in stopped])
    return lines + _listed("failed", [f"{run.run.name}: {last_line(run.reason)}" for run in failed])


def _rate(status: PlanStatus) -> list[str]:
    if not any(status.counts[activity] for activity in UNFINISHED):
        return []
    if not status.counts["running"]:
        return ["left     no run is running; repeat the command to continue"]
    speed = sum(run.speed or 0.0 for run in status.of("running"))
    rate = [f"{found:.1f} runs/h" for found in [status.runs_per_hour] if found]
    left = "unknown" if status.seconds_left is None else f"about {duration(status.seconds_left)}"
    return [f"rate     {', '.join([*rate, pace(speed)])}", f"left     {left}"]


def _progress(run: RunStatus, now: float) -> str:
    validation = "" if run.validation is None else f"validation {run.validation:.1%}"
    speed = pace(run.speed) if run.speed else ""
    last = f"last written {duration(now - run.written)} ago"
    return ", ".join(filter(None, (f"step {run.step}/{run.run.steps}", validation, speed, last)))


def _listed(name: str, texts: list[str]) -> list[str]:
    more = [f"and {len(texts) - _MOST:,} more"] if len(texts) > _MOST else []
    return [f"{name:<8} {text}" for text in texts[:_MOST] + more]


def _labels(run: RunStatus) -> str:
    return "  ".join(f"{key} {value}" for key, value in run.run.labels.items())
