"""Edits the content of messi's files and writes them with the old checksum, a matching one or none.

Only this module of the suite knows how messi writes checksums. A forgery is complete: other files of the run that
contain a checksum of the edited file are rewritten, too.
"""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from messi.core.checksum import CHECKSUM_KEY, METADATA_KEY, checksum, file_checksum, values_checksum
from messi.core.errors import MessiError
from messi.core.tensorfile import find_checksum

from .damage import Edit, dumped
from .stage import Stage

Form = Literal["json", "lines", "tensors", "binary", "empty"]
Seal = Literal["stale", "matching", "none"]
"""The checksum of the edited file: the old one, a new one, or none, as in files of 0.1."""
_OLD = "0.1.0"


def forge(stage: Stage, file: str, form: Form, edit: Edit, seal: Seal, rng: random.Random) -> None:
    """Edit a file, and adapt the other files of its folder."""
    stage.damage(file, edited(stage.files[file][0], form, edit, seal, rng))
    folder = Path(file).parent
    with suppress(ValueError, AttributeError, RecursionError, MessiError):  # nothing is left to adapt
        if seal == "matching":
            _vouch(stage, folder, file)
        if seal == "none":
            _age(stage, folder)


def edited(content: bytes, form: Form, edit: Edit, seal: Seal, rng: random.Random) -> bytes:
    """Return an edited file."""
    if form == "tensors":
        header, data = opened(content)
        metadata = header["__metadata__"]
        document = _changed(json.loads(metadata[METADATA_KEY]), edit, seal, rng, lambda _: "0" * 32)
        metadata[METADATA_KEY] = dumped(document).decode()
        return _resealed(closed(header, data)) if seal == "matching" else closed(header, data)
    if form == "lines":
        lines = content.splitlines()
        place = rng.randrange(len(lines))
        lines[place] = _line(lines[place], edit, seal, rng)
        return b"\n".join(lines) + b"\n"
    return dumped(_changed(json.loads(content), edit, seal, rng, values_checksum), indent=2) + b"\n"


def _line(line: bytes, edit: Edit, seal: Seal, rng: random.Random) -> bytes:
    """Edit a record, or a line of a store's journal, which has its checksum after a blank."""
    text, blank, mark = line.rpartition(b" ") if line.startswith(b"[") else (line, b"", b"")
    changed = dumped(_changed(json.loads(text), edit, seal, rng, values_checksum))
    marks = {"stale": mark, "matching": checksum([changed]).encode(), "none": b""}
    return changed + blank + marks[seal] if mark else changed


def _resealed(content: bytes) -> bytes:
    """Update the checksum of a tensor file, if it still has one."""
    with suppress(ValueError):
        place, whole = find_checksum(content)
        return content[:place] + whole.encode() + content[place + len(whole) :]
    return content


def _changed(document: Any, edit: Edit, seal: Seal, rng: random.Random, total: Callable[[dict[str, Any]], str]) -> Any:
    """Edit one JSON document."""
    if seal == "stale":
        return edit(document, rng)
    had = isinstance(document, dict) and document.pop(CHECKSUM_KEY, None) is not None
    document = edit(document, rng)
    if isinstance(document, dict) and seal == "none" and "version" in document:
        document["version"] = _OLD
    if isinstance(document, dict) and seal == "matching" and had:
        document[CHECKSUM_KEY] = total(document)
    return document


def _vouch(stage: Stage, folder: Path, forged: str) -> None:
    """Adapt the other files of a run: they identify its description, and the result has checksums of all files."""
    path = stage.root / folder
    if not (path / "run.json").is_file():
        return
    described = json.loads((path / "run.json").read_bytes())
    identity = values_checksum({key: value for key, value in described.items() if key != CHECKSUM_KEY})
    records = (path / "records.jsonl").read_bytes()

    def fit(document: Any, _rng: random.Random) -> Any:
        known = {"run": identity} if "run" in document else {}
        if "records_size" in document:
            known["records_checksum"] = checksum([records[: document["records_size"]]])
        return {**document, **known}

    def list_all(document: Any, _rng: random.Random) -> Any:
        return {**document, "files": {name: file_checksum(path / name) for name in document["files"]}}

    result = str(folder / "result.json")
    for file, form in _documents(stage, folder):
        if file not in (forged, result, str(folder / "run.json")):
            _refit(stage, file, form, fit, "matching")
    if result in stage.files and result != forged:
        _refit(stage, result, "json", list_all, "matching")


def _age(stage: Stage, folder: Path) -> None:
    """Make a run look as if messi 0.1 had written it."""

    def forget(document: Any, _rng: random.Random) -> Any:
        return {key: value for key, value in document.items() if key not in ("run", "records_checksum", "files")}

    for file, form in _documents(stage, folder):
        _refit(stage, file, form, forget, "none")


def _documents(stage: Stage, folder: Path) -> list[tuple[str, Form]]:
    forms: dict[str, Form] = {".json": "json", ".safetensors": "tensors"}
    inside = (Path(file) for file in stage.files if Path(file).parent == folder)
    return [(str(file), forms[file.suffix]) for file in inside if file.suffix in forms]


def _refit(stage: Stage, file: str, form: Form, edit: Edit, seal: Seal) -> None:
    """Edit a file unless it has this content already: another format would change its checksum."""
    content, rng = (stage.root / file).read_bytes(), random.Random(0)  # noqa: S311 (no secret)
    document = json.loads(opened(content)[0]["__metadata__"][METADATA_KEY] if form == "tensors" else content)
    if seal == "none" or edit(document, rng) != document:
        stage.damage(file, edited(content, form, edit, seal, rng))


def opened(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the tensors of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def closed(header: Any, data: bytes, size: int | None = None) -> bytes:
    """Return a safetensors file, whose header may claim another size."""
    text = json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data
