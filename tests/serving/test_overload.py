"""A model that is too slow for its requests: they are refused or given up with one sentence, and all is well again."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from messi.evaluation.model import Model, load
from messi.serving.documents import Answer
from messi.serving.limits import Limits
from messi.serving.predictor import Predictor
from messi.serving.ready_input import ReadyInput
from messi.serving.service import make_app

from .server import serving_here
from .test_service import PNG, sentence


class Blocked(Predictor):
    """A predictor that waits until it may work."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, None)
        self.works, self.may_work, self.fails = threading.Event(), threading.Event(), False

    def __call__(self, inputs: list[ReadyInput]) -> list[Answer | Exception]:
        self.works.set()
        assert self.may_work.wait(20)
        if self.fails:
            raise RuntimeError("secret details")
        return super().__call__(inputs)


@pytest.fixture
def blocked(image_run: Path) -> Blocked:
    return Blocked(load(image_run / "run"))


@pytest.fixture
def client(blocked: Blocked) -> Iterator[httpx.Client]:
    app = make_app(blocked, Limits(queue=3, seconds=3), no_warning_because="It is a test.")
    with serving_here(app) as url, httpx.Client(base_url=url, timeout=30) as made:
        yield made
        blocked.may_work.set()


def test_a_full_queue_is_503_and_a_late_answer_504(blocked: Blocked, client: httpx.Client, image_run: Path) -> None:
    body = next((image_run / "images").rglob("*.png")).read_bytes()

    def ask(_: int) -> httpx.Response:
        return client.post("predict", content=body, headers=PNG)

    start = time.monotonic()
    with ThreadPoolExecutor(10) as threads:
        first = threads.submit(ask, 0)
        assert blocked.works.wait(2)  # from now on, the model is busy and the queue empty
        others = threads.map(ask, range(9))
    replies = [first.result(), *others]
    assert time.monotonic() - start < 10
    late = [reply for reply in replies if reply.status_code == 504]
    refused = [reply for reply in replies if reply.status_code == 503]
    assert len(late) + len(refused) == 10
    assert len(late) == 4  # one with the model, three in the queue
    assert all("no answer within 3 s" in sentence(reply, 504) for reply in late)
    assert all("more requests than it can answer" in sentence(reply, 503) for reply in refused)
    assert all(reply.headers["retry-after"] == "1" for reply in refused)
    blocked.may_work.set()
    assert ask(0).status_code == 200
    assert client.get("health").json()["waiting"] == 0


def test_more_inputs_than_the_queue_holds_are_413(client: httpx.Client, image_run: Path) -> None:
    body = next((image_run / "images").rglob("*.png")).read_bytes()
    reply = client.post("predict", files=[("file", (f"{i}.png", body, "image/png")) for i in range(4)])
    assert "4 inputs exceed the limit of 3" in sentence(reply, 413)
    reply = client.post("predict", files=[("file", (f"{i}.png", body, "image/png")) for i in range(65)])
    assert "64 files at most" in sentence(reply, 413)


def test_a_failure_is_500_without_details(blocked: Blocked, client: httpx.Client, image_run: Path) -> None:
    body = next((image_run / "images").rglob("*.png")).read_bytes()
    blocked.fails = True
    blocked.may_work.set()
    error = sentence(client.post("predict", content=body, headers=PNG), 500)
    assert error == "The service failed on this request; its log states why."
    blocked.fails = False
    assert client.post("predict", content=body, headers=PNG).json()["predictions"][0]["likeness"] is None
    assert client.get("model").json()["no_warning_because"] == "It is a test."
