"""A row of a table of differences: two arms of an experiment that differ in one thing."""

from typing import NamedTuple


class Comparison(NamedTuple):
    """What the difference between two arms shows."""

    effect: str
    arm: str
    baseline: str
