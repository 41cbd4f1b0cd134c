"""Requests to a real server: right answers under load, and one sentence for whatever is wrong."""

import io
import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from messi.evaluation.model import load

from .conftest import Served
from .server import serving

PNG = {"Content-Type": "image/png"}


def sentence(reply: httpx.Response, status: int) -> str:
    """Return the sentence of an error and check its form."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    values = reply.json()
    assert values.keys() == {"error"}
    assert values["error"].endswith(".")
    assert "\n" not in values["error"]
    return str(values["error"])


def test_answers_are_those_of_the_model_whoever_else_asks(images: Served, client: httpx.Client) -> None:
    files = sorted(images.data.rglob("*.png"))[::3]
    expected = load(images.run).predict(files)

    def ask(file: Path) -> dict[str, Any]:
        reply = client.post("predict", content=file.read_bytes(), headers=PNG)
        assert reply.status_code == 200, reply.text
        (answer,) = reply.json()["predictions"]
        return dict(answer)

    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(ask, files))
    assert expected.experts is not None
    for place, answer in enumerate(answers):
        assert answer["class"] == expected.labels[place]
        assert list(answer["probabilities"]) == list(load(images.run).classes) if place == 0 else True
        assert list(answer["probabilities"].values()) == pytest.approx(expected.probabilities[place].tolist(), abs=1e-6)
        assert answer["probability"] == max(answer["probabilities"].values())
        assert answer["experts"] == pytest.approx(expected.experts[place].tolist(), abs=1e-6)
        heaviest = max(range(6), key=lambda m: answer["experts"][m])
        assert answer["active_experts"][0] == heaviest + 1


def test_several_files_are_answered_in_order(images: Served, client: httpx.Client) -> None:
    files = [images.data / "photo" / label / f"{i}.png" for i in range(3) for label in ("across", "upright")]
    parts = [("file", (file.name, file.read_bytes(), "image/png")) for file in files]
    labels = [answer["class"] for answer in client.post("predict", files=parts).json()["predictions"]]
    assert labels == load(images.run).predict(files).labels


def test_the_nearest_domain_and_the_warning(images: Served, client: httpx.Client) -> None:
    noise = Image.effect_noise((40, 32), 120).convert("RGB")
    buffer = io.BytesIO()
    noise.save(buffer, "PNG")
    (strange,) = client.post("predict", content=buffer.getvalue(), headers=PNG).json()["predictions"]
    known = [
        client.post("predict", content=file.read_bytes(), headers=PNG).json()["predictions"][0]["likeness"]
        for file in sorted((images.data / "paint").rglob("*.png"))
    ]
    assert strange["likeness"]["unlike_training"] is True
    assert strange["likeness"]["distance"] > strange["likeness"]["threshold"]
    assert sum(not likeness["unlike_training"] for likeness in known) > 0.8 * len(known)
    assert sum(likeness["nearest_domain"] == "paint" for likeness in known) > 0.8 * len(known)


def test_the_model_describes_itself(client: httpx.Client) -> None:
    info = client.get("model").json()
    assert info["classes"] == ["across", "upright"]
    assert sorted(info["training_domains"]) == ["paint", "photo"]
    assert info["limits"] == {"body_bytes": 1_000_000, "pixels": 100_000_000, "queue": 256, "seconds": 5.0}
    quality = info["warning_quality"]
    assert quality["target"].keys() == {"sketch"}
    assert quality["left_out"].keys() == {"paint", "photo"}
    assert client.get("health").json() == {"status": "ok", "waiting": 0}
    paths = client.get("openapi.json").json()["paths"]
    assert paths.keys() == {"/predict", "/health", "/model"}
    assert {"408", "413", "415", "422", "503", "504"} <= paths["/predict"]["post"]["responses"].keys()


@pytest.mark.parametrize(
    ("content", "kind", "status", "expected"),
    [
        (b"", "image/png", 422, "The image cannot be read: it has 0 bytes."),
        (b"not an image", "image/png", 422, "it is damaged or not an image"),
        (b"\x89PNG\r\n\x1a\n", "application/octet-stream", 422, "The image cannot be read"),
        (b"{}", "application/json", 415, "This model takes images as image/*"),
        (b"x", "", 415, "not a body without a Content-Type."),
        (b"x", "multipart/form-data", 400, "The form cannot be read"),
        (b"x", "multipart/form-data; boundary=b", 400, "The form cannot be read"),
        (b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\ncut', "multipart/form-data; boundary=b",
         400, "The form contains no complete file"),
        (b'--b\r\nContent-Disposition: form-data; name="f"; filename="a.png"\r\n\r\n\r\n--b--\r\n',
         "multipart/form-data; boundary=b", 422, "The image 'a.png' cannot be read: it has 0 bytes."),
        (b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\ntext\r\n--b--\r\n', "multipart/form-data; boundary=b",
         400, "The form contains no complete file"),
    ],
)  # fmt: skip
def test_content_that_is_no_image_gives_one_sentence(
    content: bytes, kind: str, status: int, expected: str, client: httpx.Client
) -> None:
    headers = {"Content-Type": kind} if kind else {}
    assert expected in sentence(client.post("predict", content=content, headers=headers), status)


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(client: httpx.Client) -> None:
    buffer = io.BytesIO()
    Image.new("1", (12_000, 12_000)).save(buffer, "PNG")
    assert len(buffer.getvalue()) < 100_000
    error = sentence(client.post("predict", content=buffer.getvalue(), headers=PNG), 422)
    assert "12,000 x 12,000 pixels exceed the limit of 100,000,000" in error


@pytest.mark.parametrize("path", ["nothing", "predict/1", "static/../../etc/passwd"])
def test_unknown_pages_and_methods_give_one_sentence(path: str, client: httpx.Client) -> None:
    assert "see /docs." in sentence(client.get(path), 404)
    assert "/predict does not take GET" in sentence(client.get("predict"), 405)


def test_headers_forbid_everything_else(client: httpx.Client) -> None:
    for path in ("", "docs", "model", "nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


HEAD = "POST /predict HTTP/1.1\nHost: localhost\nContent-Type: image/png\nConnection: close\n"


def error_of(reply: bytes) -> str:
    return str(json.loads(reply.rpartition(b"\r\n\r\n")[2])["error"])


def test_two_gigabytes_are_refused_by_their_stated_length(images: Served) -> None:
    before = images.server.memory()
    reply, seconds, _ = images.server.send(f"{HEAD}Content-Length: 2000000000\n\n", b"x" * 100_000)
    assert reply.startswith(b"HTTP/1.1 413")
    assert "2 GB exceed the limit of 1 MB for a request" in error_of(reply)
    assert seconds < 5
    assert images.server.memory() - before < 20e6


def test_an_endless_body_is_refused_by_counting_its_bytes(images: Served) -> None:
    before = images.server.memory()
    chunk = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
    reply, _, sent = images.server.send(f"{HEAD}Transfer-Encoding: chunked\n\n", *[chunk] * 30_000)
    assert sent < 30e6  # of 2 GB
    assert reply.startswith(b"HTTP/1.1 413")
    assert "exceed the limit of 1 MB" in error_of(reply)
    assert images.server.memory() - before < 20e6


def test_a_body_that_does_not_arrive_is_given_up(images: Served) -> None:
    reply, seconds, _ = images.server.send(f"{HEAD}Content-Length: 1000\n\n", b"only this")
    assert reply.startswith(b"HTTP/1.1 408")
    assert "did not arrive within 5 s" in error_of(reply)
    assert 4 < seconds < 12


@pytest.mark.parametrize(
    "head",
    [
        "nonsense\n\n",
        "POST /predict HTTP/1.1\nHost: localhost\nContent-Length: -1\n\n",
        "POST /predict HTTP/1.1\nHost: localhost\nContent-Length: many\n\n",
        "POST /predict HTTP/1.1\nHost: localhost\nContent-Length: \n\n",
        "POST /predict HTTP/1.1\nHost: localhost\nContent-Length: 1\nContent-Length: 2\n\n",
        "GET / HTTP/1.1\nHost: localhost\nA: " + "x" * 200_000 + "\n\n",
    ],
)
def test_malformed_http_is_refused_and_the_service_goes_on(images: Served, client: httpx.Client, head: str) -> None:
    reply, seconds, _ = images.server.send(head)
    assert reply.startswith(b"HTTP/1.1 400") or (reply == b"" and len(head) > 100_000)
    if reply:
        assert b"content-type: application/json\r\n" in reply
        assert error_of(reply) == "The request is not valid HTTP; check its headers, such as Content-Length."
    assert seconds < 5
    assert client.get("health").status_code == 200


def test_clients_that_hang_up_leave_nothing_behind(images: Served, client: httpx.Client) -> None:
    body = images.image.read_bytes()
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", images.server.port), 5) as connection:
            connection.sendall(f"{HEAD}Content-Length: {len(body)}\n\n".replace("\n", "\r\n").encode() + body[:200])
    deadline = time.monotonic() + 10
    while client.get("health").json()["waiting"] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert client.post("predict", content=body, headers=PNG).status_code == 200


def test_sigterm_ends_the_service_after_the_running_requests(image_run: Path) -> None:
    body = (image_run / "images" / "photo" / "across" / "0.png").read_bytes()
    with serving(image_run / "run", home=image_run / "home") as server:
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            head = f"{HEAD}Content-Length: {len(body)}\n\n".replace("\n", "\r\n").encode()
            connection.sendall(head + body[:-1])
            time.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port), 5)
            connection.sendall(body[-1:])
            reply = b""
            while more := connection.recv(65536):
                reply += more
        assert reply.startswith(b"HTTP/1.1 200")
        assert server.process.wait(30) == 0


def test_the_first_request_does_not_wait_for_imports(images: Served, image_run: Path) -> None:
    """It took 3.5 s and 170 MB, most of them for torchvision, unless the server had just encoded validation images."""
    assert (images.run / "novelty.safetensors").exists()
    with serving(images.run, home=image_run / "home") as server, httpx.Client(base_url=server.url) as client:
        before = server.memory()
        assert client.post("predict", content=images.image.read_bytes(), headers=PNG).status_code == 200
        assert server.memory() - before < 50e6
