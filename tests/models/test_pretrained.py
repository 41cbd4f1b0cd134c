"""Pretrained weights with a reachable and an unreachable hub."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import huggingface_hub
import pytest
from huggingface_hub import constants

from messi.core.errors import MessiError
from messi.models.encoder import EncoderConfig
from messi.models.pretrained import cached_if_unreachable


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bypass proxies, with a new client."""
    monkeypatch.setenv("no_proxy", "*")
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the hub to a port on which nothing listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")


@pytest.mark.usefixtures("nobody")
def test_without_network_missing_weights_are_reported_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: str) -> None:
    def wait(seconds: float) -> None:
        raise AssertionError(f"The hub's client tries again after {seconds} s.")

    monkeypatch.setattr("time.sleep", wait)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MessiError, match=r"weights of 'test_vit' could not be downloaded .*--weights.*--no-pretrained"):
        EncoderConfig(backbone="test_vit").build((3, 160, 160))
    assert not constants.HF_HUB_OFFLINE


class Refuses(BaseHTTPRequestHandler):
    """Responds like a mirror without the page."""

    def do_HEAD(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None: ...


def test_a_hub_that_responds_is_left_to_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        try:
            with cached_if_unreachable():
                assert not constants.HF_HUB_OFFLINE
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.usefixtures("nobody")
def test_a_client_in_offline_mode_stays_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with cached_if_unreachable():
        assert constants.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE
