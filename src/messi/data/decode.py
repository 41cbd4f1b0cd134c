"""Decoding many image files in parallel, in order, with bounded memory."""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from messi.core.errors import MessiError
from messi.data.image_files import read_picture_and_digest

_CHUNK = 128


@dataclass(frozen=True)
class Decoded:
    """What came of one file."""

    file: str
    pixels: np.ndarray | None = None
    """[height, width, 3], or None where the file has the digest that it had before."""
    digest: str = ""
    failure: str = ""
    """Why it could not be decoded."""


def decode_all(root: Path, files: Sequence[str], digests: Mapping[str, str]) -> Iterator[list[Decoded]]:
    """Yield what came of all files, some at a time; ``digests`` are those of files that were decoded before.

    Threads do: Pillow lets go of Python's lock while it decodes and resizes.
    """
    waiting: deque[Future[Decoded]] = deque()
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for start in range(0, len(files) + _CHUNK, _CHUNK):
            ready = [waiting.popleft() for _ in range(max(0, len(waiting) - _CHUNK))]
            waiting.extend(
                pool.submit(_decode, root, file, digests.get(file)) for file in files[start : start + _CHUNK]
            )
            if ready:
                yield [future.result() for future in ready]
        if waiting:
            yield [future.result() for future in waiting]
    finally:
        pool.shutdown(cancel_futures=True)


def _decode(root: Path, file: str, before: str | None) -> Decoded:
    try:
        picture, digest = read_picture_and_digest(root / file)
    except MessiError as error:
        return Decoded(file, failure=str(error))
    if digest == before:
        return Decoded(file, digest=digest)
    return Decoded(file, pixels=np.ascontiguousarray(picture.permute(1, 2, 0).numpy()), digest=digest)
