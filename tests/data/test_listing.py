"""Which files of a folder are images, for any names."""

import os
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from PIL import Image

from messi.core.errors import MessiError
from messi.data.datasets.folder import Folder
from messi.data.image_files import SUFFIXES, read_picture
from messi.data.listing import list_folder, make_listing
from messi.data.progress import DataProgress, LogProgress

ODD = os.fsdecode(b"\xff\xfe not text")


def paint(path: Path, color: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (3, 2), (color, color, color)).save(path, format="PNG")


class Idle(LogProgress):
    """Fails if anything is decoded."""

    def started(self, text: str, total: int | None) -> None:  # noqa: ARG002 (the protocol's)
        pytest.fail(text)


def loaded(root: Path, progress: DataProgress | None = None) -> dict[str, tuple[str, str]]:
    """Load a folder whose images are all different, and return the domain and class of each file."""
    listing, examples = list_folder(root), Folder(path=str(root)).load(progress)
    for file, picture in zip(listing.files, examples.inputs, strict=True):
        assert torch.equal(picture, read_picture(root / file)), file
    domains = [examples.domain_names[index] for index in examples.domains.tolist()]
    labels = [examples.classes[index] for index in examples.labels.tolist()]
    return dict(zip(listing.files, zip(domains, labels, strict=True), strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "two words",
        " around ",
        unicodedata.normalize("NFC", "Müller Ångström"),
        unicodedata.normalize("NFD", "Müller Ångström"),
        "猫 🐈‍⬛",
        "new\nline",
        "car\rriage",
        "quote \"' , ; %s [bold]",
        "back\\slash",
        ODD,
        "-dash",
        "a" * 200,
    ],
)
def test_any_name_can_be_listed_stored_and_loaded(name: str, tmp_path: Path) -> None:
    """As domain, class and file name: through the listing and the journal of the store."""
    root = tmp_path / "data"
    files = [f"{name}/cat/1.png", f"dom/{name}/1.png", f"dom/cat/{name}.png"]
    for color, file in enumerate(files):
        paint(root / file, color)
    wanted = {files[0]: (name, "cat"), files[1]: ("dom", name), files[2]: ("dom", "cat")}
    assert loaded(root) == wanted
    assert loaded(root, Idle()) == wanted


@pytest.mark.parametrize("name", ["a" * 255, "ü" * 127])
def test_the_folder_itself_may_have_the_longest_possible_name(name: str, tmp_path: Path) -> None:
    paint(tmp_path / name / "dom/cat/1.png")
    assert loaded(tmp_path / name) == {"dom/cat/1.png": ("dom", "cat")}
    assert loaded(tmp_path / name, Idle()) == {"dom/cat/1.png": ("dom", "cat")}


def test_composed_and_decomposed_names_are_two_names(tmp_path: Path) -> None:
    composed, decomposed = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    paint(tmp_path / f"data/a/{composed}/{composed}.png", 1)
    paint(tmp_path / f"data/a/{decomposed}/{decomposed}.png", 2)
    assert [label for _, label in loaded(tmp_path / "data").values()] == sorted([composed, decomposed])


def test_links_to_files_classes_and_domains_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "data"
    paint(root / "a/cat/1.png", 1)
    paint(tmp_path / "elsewhere/2.png", 2)
    paint(tmp_path / "faraway/cow/3.png", 3)
    (root / "a/cat/2.png").symlink_to(tmp_path / "elsewhere/2.png")
    (root / "a/dog").symlink_to(tmp_path / "elsewhere")
    (root / "b").symlink_to(tmp_path / "faraway")
    assert loaded(root) == {
        "a/cat/1.png": ("a", "cat"),
        "a/cat/2.png": ("a", "cat"),
        "a/dog/2.png": ("a", "dog"),
        "b/cow/3.png": ("b", "cow"),
    }


def test_hidden_files_are_ignored_and_stray_ones_are_named(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for file in ("a/cat/1.png", "a/cat/.2.png", "a/.hidden/3.png", ".git/cat/4.png"):
        paint(root / file)
    for file in ("read me.txt", ".DS_Store", "a/labels.csv", "a/cat/Thumbs.db", "a/cat/noext", "a/cat/5.png.bak"):
        (root / file).write_bytes(b"")
    (root / "a/cat/deeper").mkdir()
    listing = list_folder(root)
    assert listing.files == ("a/cat/1.png",)
    stray = ["a/cat/5.png.bak", "a/cat/Thumbs.db", "a/cat/deeper", "a/cat/noext", "a/labels.csv", "read me.txt"]
    assert sorted(listing.ignored) == stray


@pytest.mark.parametrize("suffix", ["jpg", "JPG", "JPEG", "Png", "PGM", "tif", "TIFF", "WebP", "bmp", "ppm"])
def test_suffixes_may_be_upper_case(suffix: str, tmp_path: Path) -> None:
    paint(tmp_path / f"data/a/cat/1.{suffix}")
    assert list_folder(tmp_path / "data").files == (f"a/cat/1.{suffix}",)


def test_the_order_is_domainbeds(tmp_path: Path) -> None:
    """DomainBed sorts domains as strings, and torchvision's ImageFolder classes and files: Z before a, 10 before 2."""
    names = ["a", "B", "b", "10", "2", "1", "é", "Z", "_", "-"]
    for domain in names[:4]:
        for label in names[3:7]:
            for file in names:
                paint(tmp_path / f"data/{domain}/{label}/{file}.png")
    listing = list_folder(tmp_path / "data")
    domains = sorted(entry.name for entry in os.scandir(tmp_path / "data") if entry.is_dir())
    assert listing.domain_names == tuple(domains) == ("10", "B", "a", "b")
    wanted = []
    for domain in domains:
        place = tmp_path / "data" / domain
        for label in sorted(entry.name for entry in os.scandir(place) if entry.is_dir()):
            wanted += [f"{domain}/{label}/{file}" for file in sorted(file.name for file in (place / label).iterdir())]
    assert listing.files == tuple(wanted)
    assert listing.classes == ("1", "10", "2", "é")


def test_only_the_named_domains_are_listed(tmp_path: Path) -> None:
    for domain in "abc":
        paint(tmp_path / f"data/{domain}/cat/1.png")
    assert list_folder(tmp_path / "data", domains=["c", "a"]).files == ("c/cat/1.png", "a/cat/1.png")
    with pytest.raises(MessiError, match=r"There is no folder .*/data/d; it must contain class folders"):
        list_folder(tmp_path / "data", domains=["a", "d"])


def test_a_selection_of_files_keeps_labels_domains_and_parts() -> None:
    rows = [("1", "b", "x"), ("2", "a", "y"), ("3", "b", "z")]
    some = make_listing(Path("r"), rows, parts=["train", "val", "test"], ignored=["i"]).only([2, 0])
    assert (some.files, some.parts, some.ignored) == (("3", "1"), ("test", "train"), ("i",))
    assert (some.labels.tolist(), some.domains.tolist()) == ([2, 0], [1, 1])
    assert len(make_listing(Path("r"), rows).only([])) == 0


def test_numbers_are_sorted_as_numbers_on_request() -> None:
    rows = [(str(i), name, "x") for i, name in enumerate(["10", "9", "b", "010", "²", "-1"])]
    assert make_listing(Path(), rows).domain_names == ("-1", "010", "10", "9", "b", "²")
    assert make_listing(Path(), rows, numbers_in_order=True).domain_names == ("-1", "b", "²", "9", "010", "10")


@contextmanager
def unprivileged() -> Iterator[Path]:
    """Become another user in a folder that this user owns, because root may read everything."""
    user, place = os.geteuid(), Path(tempfile.mkdtemp())
    try:
        if user == 0:
            os.chown(place, 65534, -1)
            os.seteuid(65534)
        yield place
    finally:
        os.seteuid(user)
        for folder in place.rglob("*/"):
            folder.chmod(0o700)
        shutil.rmtree(place)


@pytest.mark.parametrize("locked", ["", "a", "a/cat"])
def test_a_folder_without_read_permission_is_named(locked: str) -> None:
    with unprivileged() as place:
        paint(place / "data/a/cat/1.png")
        (place / "data" / locked).chmod(0o100)
        with pytest.raises(MessiError, match=rf"The folder .*/data/?{locked}/? cannot be read: Permission denied\."):
            list_folder(place / "data")


def test_the_suffixes_are_those_of_torchvision(tmp_path: Path) -> None:
    """DomainBed lists folders with torchvision; only the same files give the same split."""
    from torchvision.datasets.folder import IMG_EXTENSIONS  # noqa: PLC0415

    assert set(SUFFIXES) == set(IMG_EXTENSIONS)
    for suffix in (*IMG_EXTENSIONS, ".gif", ".txt"):
        paint(tmp_path / f"data/a/cat/1{suffix}")
    listing = list_folder(tmp_path / "data")
    assert listing.files == tuple(sorted(f"a/cat/1{suffix}" for suffix in IMG_EXTENSIONS))
    assert listing.ignored == ("a/cat/1.gif", "a/cat/1.txt")


def test_the_error_for_a_class_folder_without_images_lists_the_suffixes(tmp_path: Path) -> None:
    paint(tmp_path / "data/a/cat/1.gif")
    with pytest.raises(
        MessiError, match=r"a/cat contains no images; .* The name of an image ends in \.bmp, .*, \.webp\.$"
    ):
        list_folder(tmp_path / "data")


def test_an_extra_level_of_folders_is_named_with_advice(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for label in ("cat", "dog"):
            paint(tmp_path / f"data/photo/{part}/{label}/1.png")
    sentence = (
        r"^The folder .*/data/photo/test contains folders \(cat, dog\) where images are expected: the layout is "
        r"domain/class/image\. Move the class folders up by one level, or list the images in a table"
    )
    with pytest.raises(MessiError, match=sentence):
        list_folder(tmp_path / "data")
