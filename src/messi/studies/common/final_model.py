"""The final model of a study: the recommended method, trained on all domains, in one file."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from messi.core.errors import MessiError, writing
from messi.core.run_documents import ExpectedAccuracy
from messi.core.rundir import RunDir
from messi.core.text import last_line
from messi.evaluation.model import read_model, save_model
from messi.studies.common.execute import Watch, launch
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.plan import Plan, PlannedRun


def final_folder(plan: Path) -> Path:
    """Return the folder of the final model in that of a plan."""
    return plan / "final"


@dataclass(frozen=True)
class FinalModel:
    """What to train, and what to expect of it."""

    folder: Path
    run: PlannedRun
    """Without a target."""
    expected: ExpectedAccuracy

    @property
    def plan(self) -> Plan:
        """A plan with this run alone, for any launcher."""
        return Plan(self.folder, [self.run])

    @property
    def file(self) -> Path:
        """The model file."""
        return RunDir(self.folder).model

    def train(self, launcher: Launcher, watch: Watch | None = None) -> bool:
        """Train the model unless it is trained, and write it with the accuracy to expect on a new domain.

        Returns whether it is there: a launcher may leave it to a job.
        """
        launch(self.plan, launcher, watch)
        (outcome,) = self.plan.outcomes()
        if outcome.state == "failed":
            why = last_line(outcome.reason)
            raise MessiError(f"The final model could not be trained: {why} Repeat the command to resume.")
        if outcome.state != "done":
            return False
        weights, description = read_model(RunDir(outcome.path))
        with writing(self.file):
            save_model(self.file, weights, dataclasses.replace(description, expected=self.expected))
        return True
