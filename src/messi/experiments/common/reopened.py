"""The selected model of a finished run, together with the data of the run, to measure what no file has yet."""

import functools

from messi.algorithms.common.base import Algorithm
from messi.data.loader import Loader
from messi.engine.evaluate import load_placed, reopen
from messi.sweeps.plan import Outcome

_load_once = functools.lru_cache(maxsize=1)(load_placed)
"""Neighbours in a plan mostly share their data."""


def reopened(outcome: Outcome) -> tuple[Algorithm, Loader]:
    """Return the model and its data on a GPU if there is one; the target may be read."""
    model, loader = reopen(outcome.path, load_data=_load_once)
    return model.algorithm, loader
