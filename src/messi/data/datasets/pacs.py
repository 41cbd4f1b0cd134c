"""PACS."""

from dataclasses import dataclass

from messi.data.datasets._benchmark import Benchmark


@dataclass(frozen=True, kw_only=True)
class Pacs(Benchmark):
    """PACS: photographs, paintings, cartoons and sketches of 7 kinds of objects."""
