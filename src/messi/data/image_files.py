"""Reading image files, one by one and many in parallel.

How unusual files are treated: truncated and empty files, and files that are not images, are refused with an error that
names them, and so are 32-bit and floating-point pixels, whose range is unknown. The content determines the format,
not the suffix. The first frame of an animation is used, 16 bits are reduced to the upper 8, CMYK and palettes become
RGB, transparency is dropped, and the EXIF rotation is applied. Only regular files are opened, and the size in a header
is compared with ``MOST_PIXELS`` before anything is decoded.
"""

import hashlib
import io
import os
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from messi.core.errors import MessiError
from messi.core.files import open_regular
from messi.core.text import bytes_text
from messi.data.threads import Budget

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""The suffixes of torchvision's ImageFolder: a folder has the same images, and so the same split, as in DomainBed."""
MOST_PIXELS = 100_000_000
"""The largest image that is decoded, and the number of pixels that all threads together decode at a time.

Pillow uses 4 bytes per pixel and up to 8 more to rotate and convert it, so this limits decoding to about 1.2 GB of
memory. Only decoded pixels count: a very large JPEG is decoded at down to an eighth of its size.
"""
MOST_BYTES = 1_000_000_000
"""The largest image file: ``MOST_PIXELS`` of four 16-bit channels, uncompressed, are 800 MB."""
# The formats behind the suffixes; one of Pillow's other formats (EPS) would start another program.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "AVIF", "JPEG2000")
_DIGEST = 16
_PIXELS, _BYTES = Budget(MOST_PIXELS), Budget(MOST_BYTES)
LONGEST_SIDE = 320
"""The smallest crop of the augmentation (70 % of the area) still exceeds 224 pixels."""
_CHUNK = 128
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def is_picture(name: str) -> bool:
    """Return whether a file has the suffix of an image."""
    return Path(name).suffix.lower() in SUFFIXES


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hide Pillow's warnings about unusual EXIF data and large images; for one thread and those that it waits for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


@without_warnings()
def read_picture(path: Path, *, channels: int = 3) -> Tensor:
    """Read an image file as uint8 [channels, height, width]; two channels are red and green."""
    return read_picture_and_digest(path, channels=channels)[0]


def read_picture_and_digest(path: Path, *, channels: int = 3) -> tuple[Tensor, str]:
    """Read an image file and a digest of its bytes."""
    try:
        with open_regular(path) as file, _BYTES.taken(_within(os.fstat(file.fileno()).st_size)):
            content = file.read()
            picture = _decoded(content, channels)
    except Exception as error:  # Pillow raises errors of all kinds for damaged files
        raise MessiError(f"The image {path} cannot be read: {_reason(error)}. Replace or remove it.") from error
    return picture, hashlib.blake2b(content, digest_size=_DIGEST).hexdigest()


@without_warnings()
def read_picture_bytes(content: bytes, name: str, *, channels: int = 3) -> Tensor:
    """Read the content of an image file as uint8 [channels, height, width]; an error calls it ``name``."""
    try:
        return _decoded(content, channels)
    except Exception as error:
        reason = _reason(error) if content else "it has 0 bytes"
        raise MessiError(f"{name} cannot be read: {reason}. Send a whole image, such as a JPEG or PNG file.") from error


def _decoded(content: bytes, channels: int) -> Tensor:
    with Image.open(io.BytesIO(content), formats=_FORMATS) as opened:
        pixels = _draft(opened)
        with _PIXELS.taken(pixels):
            return to_tensor(opened, channels=channels)


def read_digest(path: Path) -> str:
    """Return the digest of a file's bytes without decoding it."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_DIGEST)).hexdigest()


def read_size(path: Path) -> tuple[int, int]:
    """Return the height and width that an image will have once decoded, from the header of its file."""
    with open_regular(path) as file, Image.open(file, formats=_FORMATS) as opened:
        return bounded(*opened.size)[::-1]


def _within(size: int) -> int:
    if size > MOST_BYTES:
        raise MessiError(f"its {bytes_text(size)} exceed the limit of {bytes_text(MOST_BYTES)}; make it smaller")
    return size


def _draft(opened: Image.Image) -> int:
    """Let Pillow decode a very large JPEG at 1/2, 1/4 or 1/8 of its size; return how many pixels it will decode."""
    width, height = opened.size
    smaller_width, smaller_height = bounded(width, height)
    opened.draft(None, (2 * smaller_width, 2 * smaller_height))
    # A progressive JPEG is held in memory at full size until its last byte is read.
    pixels = width * height if opened.info.get("progressive") else opened.width * opened.height
    if pixels > MOST_PIXELS:
        raise MessiError(f"its {width:,} x {height:,} pixels exceed the limit of {MOST_PIXELS:,}; make it smaller")
    return pixels


def bounded(width: int, height: int) -> tuple[int, int]:
    """Scale a width and height so that the longer side is at most ``LONGEST_SIDE``."""
    scale = min(1, LONGEST_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def to_tensor(picture: Image.Image, *, channels: int = 3) -> Tensor:
    """Apply the EXIF rotation, limit the longer side, and return uint8 [channels, height, width]."""
    upright, mode = _eight_bits(_upright(picture)), "L" if channels == 1 else "RGB"
    upright = upright if upright.mode == mode else upright.convert(mode)  # convert always copies
    size = bounded(*upright.size)
    resized = upright.resize(size, Image.Resampling.BICUBIC) if size != upright.size else upright
    pixels = torch.from_numpy(np.array(resized))
    return pixels.reshape(*pixels.shape[:2], -1).permute(2, 0, 1)[:channels]


def to_picture(pixels: Tensor) -> Image.Image:
    """Return uint8 pixels [channels, height, width] as a Pillow image; two channels become red and green."""
    channels, height, width = pixels.shape
    if channels == 2:
        pixels = torch.cat([pixels, pixels.new_zeros(1, height, width)])
    array = pixels.permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array.squeeze(-1) if channels == 1 else array)


def _upright(picture: Image.Image) -> Image.Image:
    """Apply the EXIF rotation; Pillow's own function also rewrites the EXIF data, which fails for unusual data."""
    picture.load()
    turn = _TURNS.get(picture.getexif().get(ExifTags.Base.Orientation, 1))
    return picture if turn is None else picture.transpose(turn)


def _eight_bits(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.mode in ("I", "F"):
        raise MessiError(f"pixels of mode {picture.mode} have no known range; save them with 8 bits per channel.")
    return picture


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is damaged or not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"its pixels exceed the limit of {MOST_PIXELS:,}; make it smaller"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rstrip(".") or "it is damaged or not an image"


@dataclass(frozen=True)
class Decoded:
    """The result of decoding one file."""

    file: str
    pixels: np.ndarray | None = None
    """[height, width, 3]; None if the file still has its earlier digest."""
    digest: str = ""
    failure: str = ""
    """Why it could not be decoded."""


def decode_all(root: Path, files: Sequence[str], digests: Mapping[str, str]) -> Iterator[list[Decoded]]:
    """Decode files in parallel and in order, in bounded memory: yield the results in chunks.

    ``digests`` are those of files that were decoded before. Threads suffice: Pillow releases Python's global lock
    while it decodes and resizes.
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
