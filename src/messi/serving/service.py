"""The HTTP service of a model: JSON for programs, and two pages for people."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from messi.core.errors import MessiError
from messi.core.info import version
from messi.data.image_files import MOST_PIXELS
from messi.data.threads import worker_threads
from messi.serving.batching import Batcher, QueueFullError
from messi.serving.bodies import Bodies
from messi.serving.documents import Answer, Answers, Health, ModelInfo, Problem, ServiceLimits, WarningQuality
from messi.serving.inputs import read_inputs
from messi.serving.limits import Limits
from messi.serving.page import POLICY, api_page, page
from messi.serving.predictor import Predictor
from messi.serving.problems import ProblemError, failure, handle_problems
from messi.serving.ready_input import ReadyInput

_ABOUT = (
    "Send images as image/*, application/octet-stream or files of multipart/form-data. Send rows of features as JSON, "
    "objects by column name or lists in the order of training, or as text/csv, with the names in the first line if the "
    "columns have names. null or an empty cell is a missing value. Other columns are ignored."
)
_PROBLEMS = {
    400: "The request or its body is malformed.",
    408: "The body did not arrive in time.",
    413: "The body or the number of inputs is too large.",
    415: "The model does not take this kind of content.",
    421: "The request is for a name that is not of this machine.",
    422: "An input cannot be read, or does not fit the model.",
    503: "The queue is full; repeat the request after the seconds in Retry-After.",
    504: "The answer was not ready in time.",
}
_BODY = {
    "required": True,
    "content": {
        "image/*": {"schema": {"type": "string", "format": "binary"}},
        "multipart/form-data": {
            "schema": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}
        },
        "application/json": {
            "schema": {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "items": {}}}}
        },
        "text/csv": {"schema": {"type": "string"}},
    },
}


def make_app(predictor: Predictor, limits: Limits, *, no_warning_because: str | None = None) -> FastAPI:
    """Return the service of one model."""
    batcher: Batcher[ReadyInput, Answer] = Batcher(predictor, batch_size=predictor.batch_size, room=limits.queue)
    bodies, info = Bodies(limits), _info(predictor, limits, no_warning_because)
    readers = worker_threads(os.cpu_count() or 1)

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        async with batcher:
            yield
        readers.shutdown(cancel_futures=True)

    app = FastAPI(title="messi", version=version(), lifespan=running, docs_url=None, redoc_url=None)
    handle_problems(app)
    app.add_middleware(SafeHeaders)

    @app.post(
        "/predict",
        summary="Classify images or rows",
        description=_ABOUT,
        responses={code: {"model": Problem, "description": text} for code, text in _PROBLEMS.items()},
        openapi_extra={"requestBody": _BODY},
    )
    async def predict(request: Request) -> Answers:
        deadline = asyncio.get_running_loop().time() + limits.seconds
        late = ProblemError(408, f"The body did not arrive within {limits.seconds:g} s; send it faster, or send less.")
        try:
            async with asyncio.timeout_at(deadline), bodies.read(request) as body:
                late = ProblemError(504, f"There was no answer within {limits.seconds:g} s; send less at a time.")
                kind = request.headers.get("content-type", "")
                loop = asyncio.get_running_loop()
                inputs = await loop.run_in_executor(readers, read_inputs, predictor.model.spec, kind, body)
                return Answers(predictions=await _answers(batcher, inputs, limits))
        except TimeoutError as error:
            raise late from error

    @app.get("/health", summary="Whether the service works")
    async def health() -> Health:
        return Health(waiting=batcher.waiting)

    @app.get("/model", summary="What the model takes and knows, and the limits of the service")
    async def model() -> ModelInfo:
        return info

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(page(info))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(api_page(app.openapi()))

    return app


async def _answers(batcher: Batcher[ReadyInput, Answer], inputs: list[ReadyInput], limits: Limits) -> list[Answer]:
    if len(inputs) > limits.queue:
        raise ProblemError(413, f"{len(inputs):,} inputs exceed the limit of {limits.queue:,}; send less at a time.")
    try:
        return await batcher.answer(inputs)
    except QueueFullError as error:
        raise ProblemError(503, "The service has more requests than it can answer; repeat this one later.") from error
    except MessiError:
        raise
    except Exception as error:  # such as a full GPU; the connection and the service survive it
        raise failure(error) from error


class SafeHeaders:
    """Adds the headers that keep a browser from loading or running anything else, or from framing the pages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"content-security-policy", POLICY.encode()),
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"no-referrer"),
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        await self._app(scope, receive, send_safely)


def _info(predictor: Predictor, limits: Limits, no_warning_because: str | None) -> ModelInfo:
    model, known = predictor.model, predictor.known
    description, features = model.description, len(model.spec.shape) == 1
    quality: Any = known.quality if known else None
    return ModelInfo(
        inputs="features" if features else "images",
        features=[column.name for column in model.spec.columns] or None,
        num_features=(len(model.spec.columns) or model.spec.shape[0]) if features else None,
        classes=list(model.classes),
        training_domains=list(description.sources),
        algorithm=str(description.config["algorithm"]["name"]),
        expected_accuracy=str(description.expected) if description.expected else None,
        warning_quality=WarningQuality.model_validate(quality, from_attributes=True) if quality else None,
        no_warning_because=no_warning_because,
        messi_version=description.version,
        licence="MIT",
        limits=ServiceLimits(
            body_bytes=limits.body_bytes, pixels=MOST_PIXELS, queue=limits.queue, seconds=limits.seconds
        ),
    )
