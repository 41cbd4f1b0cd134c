"""``messi.run``: a run as ``messi train`` does it, with a report in its folder."""

import functools
from collections.abc import Callable
from typing import ParamSpec

from messi.core.rundir import RunDir
from messi.engine import run as engine
from messi.engine.run import RunResult
from messi.reports.page import write_report

_Arguments = ParamSpec("_Arguments")


def _reported(train: Callable[_Arguments, RunResult]) -> Callable[_Arguments, RunResult]:
    @functools.wraps(train)
    def run(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> RunResult:
        result = train(*arguments, **options)
        folder = RunDir(result.path)
        if not folder.report.exists():
            write_report([folder.path], folder.report)
        return result

    return run


run = _reported(engine.run)
