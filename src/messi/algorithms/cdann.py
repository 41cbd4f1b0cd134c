"""CDANN: DANN whose discriminator also reads the class, which aligns P(features | class) (Li et al., 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms.dann import DANN


class CDANN(DANN):
    """DANN with a class-conditional discriminator; every class has the same weight."""

    @dataclass(frozen=True, kw_only=True)
    class Config(DANN.Config):
        """DomainBed's defaults, the same as DANN's."""

    conditional: ClassVar[bool] = True
