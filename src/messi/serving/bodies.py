"""The bodies of requests, bounded one by one and all together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.requests import ClientDisconnect

from messi.core.text import bytes_text
from messi.serving.limits import Limits
from messi.serving.problems import ProblemError

_BODIES = 16
"""How many bodies of the largest size fit into memory at a time."""


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
