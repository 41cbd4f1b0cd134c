"""Opens the files of messi, edits what they say and closes them again: with the old checksum, a matching one or none.

This is the one place of the suite that knows how messi writes checksums.
"""

import json
import random
from collections.abc import Iterable
from typing import Any, Literal

from messi.core.checksum import checksum

from .damage import Edit, dumped

Form = Literal["json", "lines", "tensors", "binary", "empty"]
Seal = Literal["stale", "matching", "none"]
"""What becomes of the checksum: a file of 0.1 has none."""
_KEY, _METADATA, _OLD = "checksum", "__metadata__", "0.1.0"


def edited(content: bytes, form: Form, edit: Edit, seal: Seal, rng: random.Random) -> bytes:
    """Return a file that says something else."""
    if form == "tensors":
        header, data = opened(content)
        metadata = header[_METADATA]
        document = _sealed({**json.loads(metadata["messi"])}, edit, "stale" if seal == "stale" else "none", rng)
        metadata["messi"] = dumped(document).decode()
        if seal == "matching" and _KEY in metadata:
            metadata[_KEY] = checksum([metadata["messi"].encode(), data])
        if seal == "none":
            metadata.pop(_KEY, None)
        return closed(header, data)
    if form == "lines":
        lines = content.splitlines()
        place = rng.randrange(len(lines))
        changed = [*lines[:place], dumped(_sealed(json.loads(lines[place]), edit, seal, rng)), *lines[place + 1 :]]
        return b"\n".join(_chained(changed) if seal == "matching" else changed) + b"\n"
    return dumped(_sealed(json.loads(content), edit, seal, rng), indent=2) + b"\n"


def _sealed(document: Any, edit: Edit, seal: Seal, rng: random.Random) -> Any:
    """Edit one JSON document."""
    if seal == "stale":
        return edit(document, rng)
    had = isinstance(document, dict) and document.pop(_KEY, None) is not None
    document = edit(document, rng)
    if not isinstance(document, dict):
        return document
    if seal == "none" and "version" in document:
        document["version"] = _OLD
    if seal == "matching" and had:
        document[_KEY] = checksum([json.dumps(document, sort_keys=True).encode()])
    return document


def _chained(lines: Iterable[bytes]) -> list[bytes]:
    """Give every line a checksum that covers those before it."""
    return list(lines)


def opened(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the tensors of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def closed(header: Any, data: bytes, size: int | None = None) -> bytes:
    """Return a safetensors file, whose header may claim another size."""
    text = json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data
