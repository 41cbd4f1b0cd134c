"""From the body of a request to inputs of the model. Runs in worker threads: decoding takes time."""

from python_multipart import create_form_parser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import File

from messi.core.batch import InputSpec
from messi.data.image_files import read_picture_bytes
from messi.serving.problems import ProblemError
from messi.serving.ready_input import ReadyInput
from messi.serving.rows import read_csv, read_json

_FILES = 64
"""The most files in one request."""


def read_inputs(spec: InputSpec, content_type: str, body: bytes) -> list[ReadyInput]:
    """Return the inputs in a body: images, or rows of features as JSON or CSV."""
    kind = content_type.partition(";")[0].strip().lower()
    inputs = _rows(spec, kind, body) if len(spec.shape) == 1 else _images(spec, kind, content_type, body)
    if not inputs:
        raise ProblemError(422, "There is nothing to predict; send at least one image or row.")
    return inputs


def _rows(spec: InputSpec, kind: str, body: bytes) -> list[ReadyInput]:
    if kind == "application/json":
        return read_json(body, spec)
    if kind == "text/csv":
        return read_csv(body, spec)
    raise _unsupported(kind, "rows of features as application/json or text/csv")


def _images(spec: InputSpec, kind: str, content_type: str, body: bytes) -> list[ReadyInput]:
    if kind == "multipart/form-data":
        files = _files(content_type, body)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        files = [("The image", body)]
    else:
        raise _unsupported(kind, "images as image/*, application/octet-stream or multipart/form-data")
    return [ReadyInput(read_picture_bytes(content, name, channels=spec.shape[0])) for name, content in files]


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


def _unsupported(kind: str, wanted: str) -> ProblemError:
    return ProblemError(415, f"This model takes {wanted}, not {kind or 'a body without a Content-Type'}.")
