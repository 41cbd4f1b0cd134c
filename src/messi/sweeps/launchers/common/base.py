"""What every launcher offers: it runs a plan somewhere. State stays on disk and is read with ``plan.outcomes()``."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from messi.core.config import Config
from messi.core.registry import Registry, short_name
from messi.sweeps.plan import Outcome, Plan

LAUNCHERS = Registry("launcher", "messi.sweeps.launchers")


@dataclass(frozen=True, kw_only=True)
class Launcher(Config, ABC):
    """An execution environment; its fields are options of ``messi reproduce``.

    :meth:`launch` starts processes or jobs that call :func:`messi.sweeps.one_run.do_run` for one run each, and reports
    each end with :meth:`messi.sweeps.plan.Plan.record_end`.
    """

    registry: ClassVar[Registry | None] = LAUNCHERS

    def check(self) -> None:
        """Raise an error if the environment cannot be used; called before data is downloaded."""

    @abstractmethod
    def launch(self, plan: Plan, on_end: Callable[[Outcome], None]) -> None:
        """Do every unfinished run of a plan and call ``on_end`` after each; a run that fails does not stop the others.

        The runs do not depend on each other: a plan whose runs do is launched stage by stage.
        A launcher that is killed can be started again: it resumes the runs that had begun. One that leaves its runs to
        jobs may return earlier.
        """

    def describe(self, runs: int) -> str:  # noqa: ARG002 (for launchers with a number of workers)
        """Return a few words on how this many runs will be executed."""
        return f"with {short_name(self.name)}"
