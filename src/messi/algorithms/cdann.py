"""CDANN: DANN with an adversary that is told the class, so that P(features | class) is aligned (Li et al., 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms.dann import DANN


class CDANN(DANN):
    """DANN with a discriminator that sees the class, every class counting the same."""

    @dataclass(frozen=True, kw_only=True)
    class Config(DANN.Config):
        """DomainBed's values; the same as DANN's."""

    conditional: ClassVar[bool] = True
