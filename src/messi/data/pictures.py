"""Reading image files.

What becomes of odd files: truncated, empty or foreign ones are refused by name, and so are 32-bit and floating-point
pixels, whose range only their maker knows. The content decides, not the suffix. The first frame of an animation is
taken, 16 bits are cut to the upper 8, CMYK and palettes become RGB, transparency is dropped, EXIF rotation is applied.
"""

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from messi.core.errors import MessiError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
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
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as opened:
            width, height = bounded(*opened.size)
            opened.draft(None, (2 * width, 2 * height))  # a JPEG far too large is decoded at a half, quarter or eighth
            picture = to_tensor(opened, channels=channels)
    except Exception as error:  # Pillow's readers raise all kinds of them at damaged files
        raise MessiError(f"The image {path} cannot be read: {_reason(error)}. Replace or remove it.") from error
    return picture, hashlib.blake2b(content, digest_size=16).hexdigest()


def read_size(path: Path) -> tuple[int, int]:
    """Return the height and width that an image will have, from the first bytes of its file."""
    with Image.open(path) as opened:
        return bounded(*opened.size)[::-1]


def bounded(width: int, height: int) -> tuple[int, int]:
    """Return a width and height of the same ratio whose longer side is at most ``LONGEST_SIDE``."""
    scale = min(1, LONGEST_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def to_tensor(picture: Image.Image, *, channels: int = 3) -> Tensor:
    """Turn a picture upright, bound its longer side and return it as uint8 [channels, height, width]."""
    upright = _eight_bits(_upright(picture)).convert("L" if channels == 1 else "RGB")
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
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rstrip(".") or "it is damaged or no image"
