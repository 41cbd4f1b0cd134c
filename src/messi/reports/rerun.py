"""The command that repeats a run."""

import shlex

from messi.reports.runs import FinishedRun


def rerun_command(run: FinishedRun) -> str:
    """Return the command that trains with the saved config of a run, or averages the same runs, into a new folder."""
    command = ["messi", "train", "--config", str(run.path / "run.json")]
    if run.average:
        command = ["messi", "average", *(one.path for one in run.average.runs), "--choice", run.average.choice]
    command += ["--out", f"{run.path}-again"]
    method = run.config["algorithm"]["name"]
    if method.endswith(".py"):  # a saved config alone never executes a user's own file
        command += ["--algorithm", method]
    return shlex.join(command)
