"""Attacks: false headers, names of files to execute, sizes that fill the memory."""

import io
import json
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from .damage import Bytes, Edit
from .forge import closed, opened

Random = random.Random
Header = Callable[[dict[str, Any], Random], Any]


def _header(change: Header) -> Bytes:
    """Return a change to the header of a safetensors file."""

    def damaged(content: bytes, rng: Random) -> bytes:
        header, data = opened(content)
        return closed(change(header, rng) or header, data)

    return damaged


def _two(header: dict[str, Any], rng: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two tensors of the same shape, or any two."""
    tensors = [value for key, value in header.items() if key != "__metadata__"]
    one = rng.choice(tensors)
    alike = [other for other in tensors if other is not one and other["shape"] == one["shape"]]
    return one, rng.choice(alike or [other for other in tensors if other is not one])


def _overlap(header: dict[str, Any], rng: Random) -> None:
    one, other = _two(header, rng)
    one["data_offsets"] = other["data_offsets"]


def _exchange(header: dict[str, Any], rng: Random) -> None:
    one, other = _two(header, rng)
    for key in ("data_offsets", "shape"):
        one[key], other[key] = other[key], one[key]


def _set(key: str, value: Any) -> Header:
    def change(header: dict[str, Any], rng: Random) -> None:
        _two(header, rng)[0][key] = value

    return change


def _transpose(header: dict[str, Any], rng: Random) -> None:
    for tensor in header.values():
        if len(tensor.get("shape", ())) > 1:
            tensor["shape"] = tensor["shape"][::-1]


def _rename(header: dict[str, Any], rng: Random) -> dict[str, Any]:
    name = rng.choice([key for key in header if key != "__metadata__"])
    return {f"{key}_" if key == name else key: value for key, value in header.items()}


def _spoil(content: bytes, rng: Random) -> bytes:
    """Put a NaN among the weights."""
    place = len(content) - 4 * rng.randrange(1, (len(content) - len(json.dumps(opened(content)[0])) - 64) // 4)
    return content[:place] + struct.pack("<f", float("nan")) + content[place + 4 :]


HEADERS: dict[str, Bytes] = {
    "a header of 2^62 bytes": lambda content, _: closed(*opened(content), size=1 << 62),
    "a header of 2^33 bytes": lambda content, _: closed(*opened(content), size=1 << 33),
    "a header of no bytes": lambda content, _: closed(*opened(content), size=0),
    "a header cut short": lambda content, rng: closed(*opened(content), size=rng.randrange(2, 200)),
    "tensors that overlap": _header(_overlap),
    "two tensors exchanged": _header(_exchange),
    "a tensor beyond the end": _header(_set("data_offsets", [0, 1 << 40])),
    "a tensor of another type": _header(_set("dtype", "I32")),
    "a tensor of an unknown type": _header(_set("dtype", "evil")),
    "a tensor of a huge shape": _header(_set("shape", [1 << 40, 1 << 40])),
    "tensors transposed": _header(_transpose),
    "a tensor renamed": _header(_rename),
    "no metadata": _header(lambda header, _: header.pop("__metadata__") and None),
    "metadata of another program": _header(lambda header, _: header["__metadata__"].update(messi="{}") or None),
    "metadata that is no JSON": _header(lambda header, _: header["__metadata__"].update(messi="{") or None),
    "a header that is a list": lambda content, _: closed([], opened(content)[1]),
    "a weight that is NaN": _spoil,
}


def _say(*path: str, value: Any) -> Edit:
    """Return an edit that sets one value, if its place exists."""

    def edit(document: Any, rng: Random) -> Any:
        inner = document
        for key in path[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else {}
        inner[path[-1]] = value() if callable(value) else value
        return document

    return edit


def _here() -> str:
    return str(Path("evil.py").resolve())


CONFIGS: dict[str, Edit] = {
    "an algorithm evil.py": _say("config", "algorithm", value={"name": "evil.py"}),
    "an algorithm /.../evil.py": _say("config", "algorithm", "name", value=_here),
    "an algorithm that is a module": _say("config", "algorithm", "name", value="..cli.demo"),
    "data evil.py": _say("config", "data", "name", value="evil.py"),
    "data /.../evil.py": _say("config", "data", value=lambda: {"name": _here()}),
    "data in /dev/zero": _say("config", "data", value={"name": "arrays", "path": "/dev/zero"}),
    "a backbone vit_giant": _say("config", "encoder", "backbone", value="vit_giant_patch14_224"),
    "a backbone from the hub": _say("config", "encoder", "backbone", value="hf-hub:evil/model"),
    "weights in /dev/zero": _say("config", "encoder", "weights", value="/dev/zero"),
    "ten million experts": _say("config", "algorithm", "num_experts", value=10**7),
    "a billion classes": _say("task", "num_classes", value=10**9),
    "other classes": _say("classes", value=["cat"]),
    "classes that are numbers": _say("classes", value=[1, 2]),
    "images of a terabyte": _say("spec", "shape", value=[3, 1 << 20, 1 << 20]),
    "no task": _say("task", value=None),
    "a wrong spec": _say("spec", value={"shape": "abc"}),
    "a step beyond all": _say("step", value=10**30),
}
STATES: dict[str, Edit] = {
    "a step beyond the last": _say("step", value=10**9),
    "a negative step": _say("step", value=-5),
    "records of a negative size": _say("records_size", value=-1),
    "records of a huge size": _say("records_size", value=1 << 40),
    "records cut short": _say("records_size", value=7),
    "no terms": _say("terms", value=[]),
    "an average that is none": _say("average", value={"a": 1}),
}
PLANS: dict[str, Edit] = {
    "an experiment evil.py": _say("name", value="evil.py"),
    "an experiment /.../evil.py": _say("name", value=_here),
    "a billion seeds": _say("seeds", value=10**9),
}


def _npz(**arrays: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def _npy(shape: tuple[int, ...], dtype: str, content: bytes) -> bytes:
    head = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + content


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("canary"),)


def _saved(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


_LABELS = {"labels": np.arange(6) % 2, "domains": np.arange(6) % 3}
ARCHIVES: dict[str, Bytes] = {
    "an array of 74 GiB": lambda *_: _npz(inputs=_npy((10**10, 2), "<f4", bytes(64))),
    "an array that unpacks to 2 GiB": lambda *_: _npz(inputs=_npy((1 << 28, 2), "<f4", bytes(1 << 22))),
    "a negative shape": lambda *_: _npz(inputs=_npy((-1, 2), "<f4", bytes(64))),
    "a pickle": lambda *_: _npz(inputs=_npy((1,), "|O", pickle.dumps(_Evil()))),
    "arrays of objects": lambda *_: _saved(inputs=np.array([None, "a"], dtype=object), **_LABELS),
    "a header that is code": lambda *_: _npz(inputs=_npy((1,), "__import__('os')", b"")),
    "complex numbers": lambda *_: _saved(inputs=np.zeros((6, 2), complex), **_LABELS),
    "values that are NaN": lambda *_: _saved(inputs=np.full((6, 2), np.nan, np.float32), **_LABELS),
    "no rows": lambda *_: _saved(inputs=np.zeros((0, 2), np.float32), labels=[], domains=[]),
    "a pickle without an archive": lambda *_: pickle.dumps(_Evil()),
    "times as labels": lambda *_: _saved(
        inputs=np.zeros((6, 2), np.float32), **{**_LABELS, "labels": np.zeros(6, "datetime64[s]")}
    ),
}


def _png(width: int, height: int, rows: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    pixels = zlib.compress(bytes((width // 8 + 1) * rows))
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


PICTURES: dict[str, Bytes] = {
    "13,000 x 13,000 pixels": lambda *_: _png(13_000, 13_000, 13_000),
    "a million times a million pixels": lambda *_: _png(1_000_000, 1_000_000, 1),
    "a row of a billion pixels": lambda *_: _png(1_000_000_000, 1, 0),
    "no pixels": lambda *_: _png(0, 0, 0),
    "a text": lambda *_: b"GIF89a, or not",
}
TABLES: dict[str, Bytes] = {
    "paths that leave the folder": lambda content, _: content.replace(b"images/photo", b"../../etc"),
    "a path to /dev/zero": lambda content, _: content.replace(b"images/photo/cat/0.png", b"/dev/zero", 1),
    "a path with a zero byte": lambda content, _: content.replace(b"photo/cat/0", b"photo\0cat/0", 1),
    "a cell of a megabyte": lambda content, _: content.replace(b"photo/cat/0", b"x" * (1 << 20), 1),
    "a row with a quote": lambda content, _: content.replace(b"images/", b'"images/', 1),
}
ROWS: dict[str, Bytes] = {
    "numbers that are infinite": lambda content, _: content.replace(b"0.", b"1e999", 1),
    "numbers that are NaN": lambda content, _: content.replace(b"0.", b"nan\n0.", 1),
    "a million columns": lambda content, _: b",".join(b"%d" % i for i in range(10**6)) + b"\n" + content,
    "a name that is a formula": lambda content, _: content.replace(b"a,b", b"=cmd(),b", 1),
    "a cell with control characters": lambda content, _: content.replace(b",x,", b",\x1b[2J,"),
    "a number of a thousand digits": lambda content, _: content.replace(b"0.", b"0." + b"1" * 1000, 1),
}


def _parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"label": ["0", "1"] * 3, "domain": ["0", "1", "2"] * 2, **columns}), file)
    return file.getvalue()


PARQUET: dict[str, Bytes] = {
    "lists of different lengths": lambda *_: _parquet(a=[[1.0]] * 5 + [[1.0, 2.0]]),
    "lists of lists": lambda *_: _parquet(a=[[[1.0]]] * 6),
    "structures": lambda *_: _parquet(a=[{"b": 1}] * 6),
    "only missing values": lambda *_: _parquet(a=pyarrow.nulls(6)),
    "a text of ten megabytes": lambda *_: _parquet(a=["x" * 10**7] * 6),
}
