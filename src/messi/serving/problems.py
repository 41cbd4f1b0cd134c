"""Errors of requests: every one is JSON with one sentence."""

import http
import logging

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from messi.core.errors import MessiError
from messi.core.text import printable

_RETRY_SECONDS = 1


class ProblemError(Exception):
    """A request that cannot be answered, with the status code of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def failure(error: Exception) -> ProblemError:
    """Log an error that is not the fault of a request, and return what its client learns of it."""
    logging.getLogger("messi").error("A request failed: %s: %s", type(error).__name__, error)
    return ProblemError(500, "The service failed on this request; its log states why.")


def problem_reply(status: int, sentence: str) -> JSONResponse:
    """Return the answer to a request that has failed."""
    headers = {"Retry-After": str(_RETRY_SECONDS)} if status == http.HTTPStatus.SERVICE_UNAVAILABLE else None
    return JSONResponse({"error": printable(sentence)}, status, headers)


def handle_problems(app: FastAPI) -> None:
    """Answer every error with one sentence, and never with a traceback."""

    @app.exception_handler(ProblemError)
    async def problem(_request: Request, error: ProblemError) -> JSONResponse:
        return problem_reply(error.status, str(error))

    @app.exception_handler(MessiError)
    async def bad_input(_request: Request, error: MessiError) -> JSONResponse:
        return problem_reply(422, str(error))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        sentences = {
            404: f"There is no page {request.url.path}; see /docs.",
            405: f"{request.url.path} does not take {request.method}; see /docs.",
        }
        return problem_reply(error.status_code, sentences.get(error.status_code, str(error.detail)))

    @app.exception_handler(Exception)
    async def unexpected(_request: Request, error: Exception) -> JSONResponse:
        return problem_reply(500, str(failure(error)))
