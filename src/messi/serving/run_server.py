"""Bind an address, answer requests until a signal, and leave with every running request answered."""

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from messi.core.errors import MessiError
from messi.serving.connections import LocalNames, connections


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address; port 0 finds a free one."""
    try:
        if not 0 <= port < 2**16:  # the resolver would wrap it around
            raise OverflowError("a port is a number from 0 to 65535")
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MessiError(
            f"The address {host}, port {port}, cannot be used: {reason}; choose others with --host and --port "
            "(0 finds a free port)."
        ) from error
    return bound


def is_loopback(bound: socket.socket) -> bool:
    """Return whether only this machine can reach a socket."""
    return ipaddress.ip_address(bound.getsockname()[0]).is_loopback


def url(bound: socket.socket) -> str:
    """Return the address of the page."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def serve(app: FastAPI, bound: socket.socket, *, seconds: float, ready: Callable[[], None]) -> None:
    """Answer requests until SIGINT or SIGTERM; a request has ``seconds`` to finish, also then."""
    config = uvicorn.Config(
        LocalNames(app) if is_loopback(bound) else app,
        http=connections(seconds),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(seconds)),
    )
    server = _Server(config, ready)
    with _signals_end_quietly():
        server.run(sockets=[bound])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


@contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """Let the process go on after the server has stopped: uvicorn raises the signal again once it is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
