"""Connections to a real server that are held open for nothing, and requests for another name."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from .conftest import Served


def test_a_request_that_does_not_arrive_is_given_up(images: Served) -> None:
    """Neither a silent connection nor one whose header never ends is kept, although bytes may arrive."""
    with ThreadPoolExecutor() as threads:
        silent = [threads.submit(images.server.send, head) for head in ("", "GET /health HTTP/1.1\nHost: local")]
        dripping = threads.submit(drip, images.server.port, seconds=20)
    for reply, seconds, _ in (one.result() for one in silent):
        assert not reply
        assert 4 < seconds < 12
    assert 4 < dripping.result() < 12


def drip(port: int, *, seconds: float) -> float:
    """Send a header byte by byte, and return the time until the server ends the connection."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 30) as connection, suppress(ConnectionError):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: ")
        while time.monotonic() < start + seconds:
            connection.sendall(b"x")
            time.sleep(0.2)
    return time.monotonic() - start


def test_a_client_that_does_not_take_its_answer_is_given_up(images: Served) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(2)
        connection.connect(("127.0.0.1", images.server.port))
        with pytest.raises(TimeoutError):  # the server stops reading when its answers are not taken
            connection.sendall(100_000 * b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        port, deadline = connection.getsockname()[1], time.monotonic() + 20
        assert port in images.server.connected()
        while port in images.server.connected():
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_connection_in_use_is_kept(images: Served, client: httpx.Client) -> None:
    """Requests every second, for longer than the limit of five for a single one."""
    ports = set()
    for _ in range(7):
        reply = client.get("health")
        ports.add(reply.extensions["network_stream"].get_extra_info("client_addr")[1])
        time.sleep(1)
    assert len(ports) == 1


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "a.localhost", "127.0.0.1:1", "[::1]:8000", "10.0.0.1"])
def test_names_of_this_machine_are_answered(client: httpx.Client, host: str) -> None:
    assert client.get("health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.example", ""]
)
def test_a_foreign_name_is_refused(client: httpx.Client, host: str) -> None:
    reply = client.get("model", headers={"Host": host})
    assert reply.status_code == 421
    assert reply.json()["error"].startswith(
        f"This service is bound to the loopback address and does not answer for '{host}'"
    )
