"""Ways to damage a file: its bytes, its lines, its JSON, its safetensors header, or its type."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Random = random.Random
Bytes = Callable[[bytes, Random], bytes]
Text = Callable[[str, Random], str]
Edit = Callable[[Any, Random], Any]
_DEEP = "@deep@"
"""Stands for a value that no JSON writer would produce."""


def _place(content: bytes, rng: Random) -> int:
    return rng.randrange(max(1, len(content)))


def flip_bit(content: bytes, rng: Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :]


def change_byte(content: bytes, rng: Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + bytes([content[place] ^ rng.randrange(1, 256)]) + content[place + 1 :]


def zero_block(content: bytes, rng: Random) -> bytes:
    place, size = _place(content, rng), rng.choice((16, 512, 4096))
    block = content[place : place + size]
    return content[:place] + bytes(len(block)) + content[place + len(block) :]


def remove_bytes(content: bytes, rng: Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + content[place + rng.randrange(1, 20) :]


def insert_bytes(content: bytes, rng: Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + rng.randbytes(rng.randrange(1, 20)) + content[place:]


def remove_line(content: bytes, rng: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(lines[:-1] if len(lines) < 2 else [*lines[: (n := rng.randrange(len(lines)))], *lines[n + 1 :]])


def swap_lines(content: bytes, rng: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return content[::-1]
    one, other = rng.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def repeat_line(content: bytes, rng: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    return b"".join([*lines[:place], lines[place], *lines[place:]])


def change_digit(content: bytes, rng: Random) -> bytes:
    digits = [match.start() for match in re.finditer(rb"\d", content)] or [0]
    place = rng.choice(digits)
    return (
        content[:place]
        + rng.choice(b"0123456789".replace(content[place : place + 1], b"")).to_bytes()
        + content[place + 1 :]
    )


BYTES: dict[str, Bytes] = {
    "flip a bit": flip_bit,
    "change a byte": change_byte,
    "truncate": lambda content, rng: content[: _place(content, rng)],
    "truncate by one byte": lambda content, _: content[:-1],
    "append bytes": lambda content, rng: content + rng.randbytes(rng.randrange(1, 64)),
    "append zeros": lambda content, rng: content + bytes(rng.choice((1, 4096))),
    "append itself": lambda content, _: content + content,
    "zero a block": zero_block,
    "remove bytes": remove_bytes,
    "insert bytes": insert_bytes,
    "empty": lambda *_: b"",
    "garbage": lambda content, rng: rng.randbytes(max(100, min(len(content), 10_000))),
}
LINES: dict[str, Bytes] = {
    "remove a line": remove_line,
    "swap two lines": swap_lines,
    "repeat a line": repeat_line,
    "change a digit": change_digit,
    "add a byte order mark": lambda content, _: b"\xef\xbb\xbf" + content,
    "not UTF-8": lambda content, _: content.replace(b'"', b'"\xff', 1),
    "UTF-16": lambda content, _: content.decode("utf-8", "replace").encode("utf-16"),
}


def _containers(document: Any) -> list[Any]:
    """Return all objects and lists that are not empty."""
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    own = [document] if isinstance(document, dict | list) and document else []
    return own + [found for value in inner for found in _containers(value)]


def _somewhere(document: Any, rng: Random) -> tuple[Any, Any]:
    """Return an object or a list, preferably a shallow one, and one of its keys."""
    container = rng.choice(_containers(document)[: rng.choice((1, 3, 99999))])
    return container, rng.choice(list(container if isinstance(container, dict) else range(len(container))))


def put(value: Any) -> Edit:
    """Return an edit that puts a value somewhere."""

    def edit(document: Any, rng: Random) -> Any:
        container, key = _somewhere(document, rng)
        container[key] = value if container[key] != value else not value
        return document

    return edit


def drop(document: Any, rng: Random) -> Any:
    container, key = _somewhere(document, rng)
    del container[key]
    return document


def add(document: Any, rng: Random) -> Any:
    container, _ = _somewhere(document, rng)
    if isinstance(container, dict):
        container["extra"] = 1
    else:
        container.append(container[0])
    return document


def nudge(document: Any, rng: Random) -> Any:
    """Change a number slightly, as one wrong digit in a long number does."""
    numbers = [(c, k) for c in _containers(document) for k in (c if isinstance(c, dict) else range(len(c)))]
    numbers = [(c, k) for c, k in numbers if isinstance(c[k], int | float) and not isinstance(c[k], bool)]
    if numbers:
        container, key = rng.choice(numbers)
        container[key] += 1 if isinstance(container[key], int) else max(1e-6, abs(container[key]) * 1e-6)
    return document


def said_version(version: str) -> Edit:
    """Return an edit that claims another version."""

    def edit(document: Any, rng: Random) -> Any:
        return {**document, "version": version} if isinstance(document, dict) else version

    return edit


EDITS: dict[str, Edit] = {
    "null": put(None),
    "a list": put([1, "x"]),
    "an object": put({"a": None}),
    "a text": put("x"),
    "a huge number": put(10**400),
    "a large float": put(1e308),
    "a negative number": put(-1),
    "NaN": put(float("nan")),
    "infinity": put(float("inf")),
    "true": put(True),
    "an escape sequence": put("\x1b[31m\ud800<script>"),
    "a deep list": put(_DEEP),
    "no key": drop,
    "one key more": add,
    "a number a little off": nudge,
    "version 0.1.0": said_version("0.1.0"),
    "version 9.9": said_version("9.9"),
    "nothing but null": lambda *_: None,
    "nothing but a list": lambda *_: [],
    "nothing but an empty object": lambda *_: {},
    "nothing but a number": lambda *_: 3,
    "nothing but a deep list": lambda *_: _DEEP,
}


def dumped(document: Any, indent: int | None = None) -> bytes:
    """Return JSON, including what Python's writer would not produce."""
    return json.dumps(document, indent=indent).replace(f'"{_DEEP}"', "[" * 100_000 + "]" * 100_000).encode()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(target: str) -> Callable[[Path], None]:
    def link(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return link


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


PRESENT: dict[str, Callable[[Path], None]] = {
    "a folder": _folder,
    "a FIFO": _fifo,
    "a link to /dev/zero": _link("/dev/zero"),
    "a link to a folder": _link("."),
}
ABSENT: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "a link to itself": lambda path: _link(path.name)(path),
    "a link to nothing": _link("nothing"),
}
