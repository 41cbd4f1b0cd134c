"""Reading image files.

What becomes of odd files: truncated, empty or foreign ones are refused by name, and so are 32-bit and floating-point
pixels, whose range only their maker knows. The content decides, not the suffix. The first frame of an animation is
taken, 16 bits are cut to the upper 8, CMYK and palettes become RGB, transparency is dropped, EXIF rotation is applied.
Only regular files are opened, and what a header claims is compared with ``MOST_PIXELS`` before anything is decoded.
"""

import hashlib
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from messi.core.errors import MessiError
from messi.core.regular import open_regular
from messi.data.disk import amount
from messi.data.room import Room

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Those of torchvision's ImageFolder, so that a folder has the images, and the split, that it has in DomainBed."""
MOST_PIXELS = 100_000_000
"""The largest image that is decoded, and the most pixels that all threads together decode at a time.

Pillow takes 4 bytes for a pixel and up to twice as many again to turn and convert it, so this bounds decoding to about
1.2 GB of memory. What counts is what is really decoded: a JPEG far too large is decoded at an eighth of its size.
"""
MOST_BYTES = 1_000_000_000
"""The largest image file: four channels of 16 bits for ``MOST_PIXELS``, uncompressed, take 800 MB."""
# What the suffixes may hold; among Pillow's other formats is one that it gives to another program (EPS).
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "AVIF", "JPEG2000")
_DIGEST = 16
_PIXELS, _BYTES = Room(MOST_PIXELS), Room(MOST_BYTES)
# The smallest crop of the augmentation (70 % of the area) is still larger than 224 pixels then.
LONGEST_SIDE = 320
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
    """Tell by its suffix whether a file should be an image."""
    return Path(name).suffix.lower() in SUFFIXES


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hide what Pillow thinks of odd EXIF data and of large images; for one thread and those that it waits for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


@without_warnings()
def read_picture(path: Path, *, channels: int = 3) -> Tensor:
    """Read an image file as uint8 [channels, height, width]; two channels are its red and green."""
    return read_picture_and_digest(path, channels=channels)[0]


def read_picture_and_digest(path: Path, *, channels: int = 3) -> tuple[Tensor, str]:
    """Read an image file and a digest of its bytes."""
    try:
        with open_regular(path) as file, _BYTES.taken(_within(os.fstat(file.fileno()).st_size)):
            content = file.read()
            with Image.open(io.BytesIO(content), formats=_FORMATS) as opened:
                pixels = _draft(opened)
                with _PIXELS.taken(pixels):
                    picture = to_tensor(opened, channels=channels)
    except Exception as error:  # Pillow's readers raise all kinds of them at damaged files
        raise MessiError(f"The image {path} cannot be read: {_reason(error)}. Replace or remove it.") from error
    return picture, hashlib.blake2b(content, digest_size=_DIGEST).hexdigest()


def read_digest(path: Path) -> str:
    """Return the digest of a file's bytes alone."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_DIGEST)).hexdigest()


def read_size(path: Path) -> tuple[int, int]:
    """Return the height and width that an image will have, from the first bytes of its file."""
    with open_regular(path) as file, Image.open(file, formats=_FORMATS) as opened:
        return bounded(*opened.size)[::-1]


def _within(size: int) -> int:
    if size > MOST_BYTES:
        raise MessiError(f"its {amount(size)} exceed the limit of {amount(MOST_BYTES)}; make it smaller")
    return size


def _draft(opened: Image.Image) -> int:
    """Let a JPEG far too large be decoded at a half, quarter or eighth, and return how many pixels will be decoded."""
    width, height = opened.size
    smaller_width, smaller_height = bounded(width, height)
    opened.draft(None, (2 * smaller_width, 2 * smaller_height))
    # A progressive JPEG is kept in memory as a whole until its last byte is read.
    pixels = width * height if opened.info.get("progressive") else opened.width * opened.height
    if pixels > MOST_PIXELS:
        raise MessiError(f"its {width:,} x {height:,} pixels exceed the limit of {MOST_PIXELS:,}; make it smaller")
    return pixels


def bounded(width: int, height: int) -> tuple[int, int]:
    """Return a width and height of the same ratio whose longer side is at most ``LONGEST_SIDE``."""
    scale = min(1, LONGEST_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def to_tensor(picture: Image.Image, *, channels: int = 3) -> Tensor:
    """Turn a picture upright, bound its longer side and return it as uint8 [channels, height, width]."""
    upright, mode = _eight_bits(_upright(picture)), "L" if channels == 1 else "RGB"
    upright = upright if upright.mode == mode else upright.convert(mode)  # which would copy it
    size = bounded(*upright.size)
    resized = upright.resize(size, Image.Resampling.BICUBIC) if size != upright.size else upright
    pixels = torch.from_numpy(np.array(resized))
    return pixels.reshape(*pixels.shape[:2], -1).permute(2, 0, 1)[:channels]


def to_picture(pixels: Tensor) -> Image.Image:
    """Return uint8 pixels [channels, height, width] as a picture; two channels become red and green."""
    channels, height, width = pixels.shape
    if channels == 2:
        pixels = torch.cat([pixels, pixels.new_zeros(1, height, width)])
    array = pixels.permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array.squeeze(-1) if channels == 1 else array)


def _upright(picture: Image.Image) -> Image.Image:
    """Apply the EXIF rotation; Pillow's own function also writes the EXIF data anew, which fails where it is odd."""
    picture.load()
    turn = _TURNS.get(picture.getexif().get(ExifTags.Base.Orientation, 1))
    return picture if turn is None else picture.transpose(turn)


def _eight_bits(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.mode in ("I", "F"):
        raise MessiError(f"pixels of the mode {picture.mode} have no known range; save them with 8 bits per channel.")
    return picture


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is damaged or no image"
    if isinstance(error, Image.DecompressionBombError):
        return f"its pixels exceed the limit of {MOST_PIXELS:,}; make it smaller"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rstrip(".") or "it is damaged or no image"
