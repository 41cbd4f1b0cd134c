"""OfficeHome."""

from dataclasses import dataclass

from messi.data.datasets.common.benchmark import Benchmark


@dataclass(frozen=True, kw_only=True)
class OfficeHome(Benchmark):
    """OfficeHome: 65 everyday objects as art, clip art, product pictures and photographs."""
