"""What is said of a statement of the paper after it was checked."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, how it was checked, and whether it holds."""

    name: str
    statement: str
    """One sentence."""
    check: str
    """What was computed, and over what."""
    cases: int
    """In how many cases."""
    numbers: str
    """What came out; informations are in bits."""
    holds: bool
