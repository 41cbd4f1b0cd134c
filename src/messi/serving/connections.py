"""Connections that cannot be held open for nothing, and requests that were meant for another server."""

import asyncio
import ipaddress
import socket

import h11
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from messi.serving.problems import problem_reply


def connections(seconds: float) -> type[H11Protocol]:
    """Return the connections of a server whose requests take at most ``seconds``.

    uvicorn closes a connection that is silent after an answer. These close also when the header of a request does not
    arrive, or when the client does not take its answer. A request that is not HTTP gets the error that others get.
    """

    class BoundedConnection(H11Protocol):
        _check: asyncio.TimerHandle

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
            super().connection_made(transport)
            self._check = self.loop.call_later(seconds, self._end_if_stuck, None, False)

        def connection_lost(self, exc: Exception | None) -> None:
            self._check.cancel()
            super().connection_lost(exc)

        def _end_if_stuck(self, before: RequestResponseCycle | None, twice: bool) -> None:
            """End unless a request arrived since the last check; one in progress may take until the next check."""
            now: RequestResponseCycle | None = self.cycle
            if now is before and (twice or now is None or now.response_complete):
                self.transport.abort()
            else:
                self._check = self.loop.call_later(seconds, self._end_if_stuck, now, now is before)

        def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (that of uvicorn, without advice)
            """Refuse what is not HTTP in JSON, like every other request; uvicorn answers in plain text."""
            reply = problem_reply(400, "The request is not valid HTTP; check its headers, such as Content-Length.")
            headers = [*reply.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=bytes(reply.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

    return BoundedConnection


class LocalNames:
    """Refuses requests for a name that is not of this machine.

    A web page can make its own name point to the loopback address, and its script could then use a service that only
    this machine reaches. The browser states the name in the header Host.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._names = {"localhost", socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        host = Headers(scope=scope).get("host") if scope["type"] == "http" else None
        if host is None or self._is_local(host):
            await self._app(scope, receive, send)
        else:
            sentence = (
                f"This service is bound to the loopback address and does not answer for '{host}'; use localhost, or "
                "let a proxy send the header Host: localhost."
            )
            await problem_reply(421, sentence)(scope, receive, send)

    def _is_local(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.lower().removesuffix(".")
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True  # a number is not a name that could be made to point here
