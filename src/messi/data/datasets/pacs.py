"""PACS."""

from dataclasses import dataclass

from messi.data.datasets.common.benchmark import Benchmark


@dataclass(frozen=True, kw_only=True)
class PACS(Benchmark):
    """PACS: photographs, paintings, cartoons and sketches of 7 kinds of objects."""
