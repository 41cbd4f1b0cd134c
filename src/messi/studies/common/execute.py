"""Do the runs of a study: for every command and every function that runs a plan."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from messi.data.progress import DataProgress
from messi.studies.common.base import Study
from messi.studies.common.plan_file import refuse_other_plan, write_plan
from messi.sweeps.check import check_data_and_weights
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.plan import Outcome, Plan

Watch = Callable[[Plan, Launcher], AbstractContextManager[Callable[[Outcome], None]]]
"""Shows the progress of a plan during a block, and yields what to call after each run."""


def execute(
    study: Study, folder: Path, launcher: Launcher, progress: DataProgress, watch: Watch | None = None
) -> list[Outcome]:
    """Do the runs of a study that are not finished; return the state of all runs.

    Nothing is written before the environment, the data and the weights have been found.
    """
    refuse_other_plan(study, folder)
    launcher.check()
    check_data_and_weights(study.plan(folder), progress)
    write_plan(study, folder)
    tried: set[tuple[str, int | None]] = set()
    # What was recorded meanwhile may let paused runs continue.
    while runs := [run for run in _listed(study, folder).runs if (run.name, run.until) not in tried]:
        launch(Plan(folder, runs), launcher, watch)
        tried |= {(run.name, run.until) for run in runs}
    return study.plan(folder).outcomes()


def launch(plan: Plan, launcher: Launcher, watch: Watch | None = None) -> None:
    """Do the unfinished runs of a plan, those that other runs need first."""
    with (watch or _silently)(plan, launcher) as on_end:
        for stage in plan.stages():
            launcher.launch(stage, on_end)


def count_left(outcomes: list[Outcome]) -> int:
    """Return the number of runs that a launcher has left to jobs: it returned before they ended."""
    return sum(outcome.state in ("waiting", "started") for outcome in outcomes)


def _listed(study: Study, folder: Path) -> Plan:
    """Return the plan as it is now, and list its runs for ``messi status``."""
    plan = study.plan(folder)
    plan.write_run_list()
    return plan


@contextmanager
def _silently(_plan: Plan, _launcher: Launcher) -> Iterator[Callable[[Outcome], None]]:
    yield lambda _outcome: None
