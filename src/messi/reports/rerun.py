"""The command that repeats a run."""

import shlex

from messi.reports.runs import FinishedRun


def rerun_command(run: FinishedRun) -> str:
    """Return the command that trains with the saved config of a run, into a new folder."""
    command = ["messi", "train", "--config", str(run.path / "run.json"), "--out", f"{run.path}-again"]
    method = run.config["algorithm"]["name"]
    if method.endswith(".py"):  # a saved config alone never executes a user's own file
        command += ["--algorithm", method]
    return shlex.join(command)
