"""VLCS."""

from dataclasses import dataclass

from messi.data.datasets.common.benchmark import Benchmark


@dataclass(frozen=True, kw_only=True)
class VLCS(Benchmark):
    """VLCS: photographs of 5 kinds of objects from four older data sets."""
