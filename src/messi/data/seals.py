"""Checksums of the pixels in a file: an image is compared when it is first read, before anything is done with it.

Comparing all at the start would read a whole store, which may be a hundred gigabytes, before the first step. Whoever
reads an image has its bytes at hand, and xxh3 then takes a hundredth of the time that a crop of it takes, once a run.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from messi.core.checksum import checksum
from messi.core.errors import MessiError


class Seals:
    """The images of a store that were not compared yet."""

    def __init__(self, folder: Path, expected: Mapping[int, tuple[str, str]]) -> None:
        """Take the file and the checksum of every image by the offset of its pixels."""
        self._folder, self._closed = folder, dict(expected)

    def check(self, offset: int, pixels: Tensor) -> None:
        """Raise if the pixels at an offset are not those that were written there; look at them once."""
        expected = self._closed.get(offset)
        if expected is None:
            return
        file, wanted = expected
        if checksum([pixels.numpy().data]) != wanted:
            raise MessiError(
                f"The decoded pixels of {file} in {self._folder} are damaged; delete that folder, and the images are "
                "decoded again."
            )
        self._closed.pop(offset, None)
