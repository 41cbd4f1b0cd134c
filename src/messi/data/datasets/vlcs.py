"""VLCS."""

from dataclasses import dataclass

from messi.data.datasets._benchmark import Benchmark


@dataclass(frozen=True, kw_only=True)
class Vlcs(Benchmark):
    """VLCS: photographs of 5 kinds of objects from four older data sets."""
