"""Reading image files."""

import hashlib
import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from messi.core.errors import MessiError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
# The smallest crop of the augmentation (70 % of the area) is still larger than 224 pixels then.
LONGEST_SIDE = 320


def read_picture(path: Path, *, channels: int = 3) -> Tensor:
    """Read an image file as uint8 [channels, height, width]; two channels are its red and green."""
    return read_picture_and_digest(path, channels=channels)[0]


def read_picture_and_digest(path: Path, *, channels: int = 3) -> tuple[Tensor, bytes]:
    """Read an image file and a digest of its bytes."""
    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as opened:
            picture = to_tensor(opened, channels=channels)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged or no image"
        raise MessiError(f"The image {path} cannot be read: {reason}. Replace or remove it.") from error
    return picture, hashlib.blake2b(content, digest_size=16).digest()


def to_tensor(picture: Image.Image, *, channels: int = 3) -> Tensor:
    """Turn a picture upright, bound its longer side and return it as uint8 [channels, height, width]."""
    upright = ImageOps.exif_transpose(picture)
    mode = "L" if channels == 1 else "RGB"
    converted = upright.convert(mode)
    converted.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(converted))
    return pixels.reshape(*pixels.shape[:2], -1).permute(2, 0, 1)[:channels].contiguous()


def to_picture(pixels: Tensor) -> Image.Image:
    """Return uint8 pixels [channels, height, width] as a picture; two channels become red and green."""
    channels, height, width = pixels.shape
    if channels == 2:
        pixels = torch.cat([pixels, pixels.new_zeros(1, height, width)])
    array = pixels.permute(1, 2, 0).numpy()
    return Image.fromarray(array.squeeze(-1) if channels == 1 else array)
