"""What a request may cost, and the bodies that are held in memory at a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.requests import ClientDisconnect

from messi.core.errors import MessiError
from messi.core.text import bytes_text
from messi.serving.problems import ProblemError

_BODIES = 16
"""How many bodies of the largest size fit into memory at a time."""


@dataclass(frozen=True)
class Limits:
    """The limits of the service."""

    body_bytes: int = 20_000_000
    """The largest body of a request."""
    queue: int = 1024
    """Inputs that may wait at a time."""
    seconds: float = 30.0
    """The time until a request is given up."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < 1e12:
                raise MessiError(f"The limit '{name}' must be above 0, but is {value:g}.")


class Bodies:
    """Reads bodies; counts bytes as they arrive, so that neither one body nor all together exceed their limit."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._held = limits, 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read the body of a request, which counts as held until the end of the block."""
        most = self._limits.body_bytes
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) > most:
            raise self._too_large(f"{bytes_text(int(stated))} exceed")
        body = bytearray()
        try:
            async for chunk in request.stream():
                if len(body) + len(chunk) > most:
                    raise self._too_large("The bytes received so far exceed")
                if self._held + len(chunk) > _BODIES * most:
                    raise ProblemError(503, "The service is receiving too much data now; repeat the request later.")
                body += chunk
                self._held += len(chunk)
            yield bytes(body)
        except ClientDisconnect as error:
            raise ProblemError(400, "The connection was closed before the whole body arrived.") from error
        finally:
            self._held -= len(body)

    def _too_large(self, what: str) -> ProblemError:
        return ProblemError(
            413, f"{what} the limit of {bytes_text(self._limits.body_bytes)} for a request; send less at a time."
        )
