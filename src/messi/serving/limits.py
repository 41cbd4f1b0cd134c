"""What a request may cost."""

from dataclasses import dataclass

from messi.core.errors import MessiError


@dataclass(frozen=True)
class Limits:
    """The limits of a service."""

    body_bytes: int = 20_000_000
    """The largest body of a request; a larger one is refused with the status 413."""
    queue: int = 1024
    """The number of inputs that may wait; further requests are refused with the status 503."""
    seconds: float = 30.0
    """The time after which a request is given up, with the status 504."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < 1e12:
                raise MessiError(f"The limit '{name}' must be above 0, but is {value:g}.")
