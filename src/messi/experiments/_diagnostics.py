"""What finished runs found about themselves, as values of a table."""

import math
from typing import Any

from messi.core.rundir import RunDir
from messi.experiments._results import Value
from messi.sweeps.plan import Outcome


def diagnostic(*keys: str, unit: float = 1.0) -> Value:
    """Return what takes a number from the diagnostics of a run, by its keys, in a unit; NaN where there is none."""

    def value(outcome: Outcome) -> float:
        found: Any = RunDir(outcome.path).read_diagnostics()
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return math.nan if found is None else float(found) / unit

    return value
