"""From the body of a request to inputs of the model. Runs in worker threads: decoding takes time."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import torch
from python_multipart import create_form_parser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import File
from torch import Tensor

from messi.core.errors import MessiError
from messi.data.image_files import read_picture_bytes
from messi.evaluation.model import Model
from messi.serving.problems import ProblemError

_FILES = 64
"""The most files in one request."""


def read_inputs(model: Model, content_type: str, body: bytes) -> list[Tensor]:
    """Return the inputs in a body: images, or features as JSON or CSV."""
    kind = content_type.partition(";")[0].strip().lower()
    inputs = _features(model, kind, body) if len(model.spec.shape) == 1 else _images(model, kind, content_type, body)
    if not inputs:
        raise ProblemError(422, "There is nothing to predict; send at least one image or row.")
    return inputs


def _images(model: Model, kind: str, content_type: str, body: bytes) -> list[Tensor]:
    channels = model.spec.shape[0]
    if kind == "multipart/form-data":
        return [read_picture_bytes(content, name, channels=channels) for name, content in _files(content_type, body)]
    if kind.startswith("image/") or kind == "application/octet-stream":
        return [read_picture_bytes(body, "The image", channels=channels)]
    raise _unsupported(kind, "images as image/*, application/octet-stream or multipart/form-data")


def _files(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    """Return name and content of the files in a form; other fields are ignored."""
    files: list[tuple[str, bytes]] = []

    def take(file: File) -> None:
        if len(files) == _FILES:
            raise ProblemError(413, f"A request may contain {_FILES} files at most; send the others separately.")
        file.file_object.seek(0)
        name = (file.file_name or b"").decode("utf-8", "replace")
        files.append((f"The image '{name}'", file.file_object.read()))
        file.close()

    try:
        config = {"MAX_MEMORY_FILE_SIZE": len(body) + 1}  # the body is in memory already; nothing goes to the disk
        parser = create_form_parser({"Content-Type": content_type.encode("latin-1")}, lambda _: None, take, config)
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise ProblemError(400, f"The form cannot be read: {' '.join(str(error).split()).rstrip('.')}.") from error
    if not files:
        raise ProblemError(400, "The form contains no complete file; send images as files of multipart/form-data.")
    return files


def _features(model: Model, kind: str, body: bytes) -> list[Tensor]:
    if kind == "application/json":
        rows = _json_rows(body)
    elif kind == "text/csv":
        rows = list(csv.reader(io.StringIO(_text(body))))
    else:
        raise _unsupported(kind, "features as application/json or text/csv")
    return list(encoded_rows(model, rows))


def _json_rows(body: bytes) -> list[Any]:
    """Return the rows of {"rows": [...]}."""
    try:
        values = json.loads(_text(body), parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ProblemError(400, f"The body is not JSON: {reason.rstrip('.')}.") from error
    rows = values.get("rows") if isinstance(values, dict) else None
    if not isinstance(rows, list):
        raise ProblemError(422, 'The body must be an object with a list of rows: {"rows": [...]}.')
    return rows


def _not_json(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON; write null for a missing value")


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(400, f"The body is not UTF-8: byte {error.start} is not valid.") from error


def _unsupported(kind: str, wanted: str) -> ProblemError:
    return ProblemError(415, f"This model takes {wanted}, not {kind or 'a body without a Content-Type'}.")


def encoded_rows(model: Model, rows: list[Any]) -> Tensor:
    """Return rows of numbers as the network takes them: [N, F]."""
    width = model.spec.shape[0]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != width:
            raise MessiError(f"Row {number} must be a list of {width} numbers.")
    return torch.tensor([[float(cell) for cell in row] for row in rows])
