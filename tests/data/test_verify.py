"""Verification of data, and the contact sheet."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from messi.core.errors import MessiError
from messi.data.contact_sheet import contact_sheet
from messi.data.datasets.folder import Folder
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.listing import list_folder, make_listing
from messi.data.manifest import Manifest, Version
from messi.data.progress import LogProgress
from messi.data.store import prepare_store
from messi.data.verify import Finding, compare, verify

CLASSES = ("cat", "dog")
EMPTY = (0xEE, 0xF0, 0xF2)


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    """Two domains, two classes, three images each, all different."""
    for number in range(12):
        place = tmp_path / "data" / "ab"[number // 6] / CLASSES[number // 3 % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6), (number, 0, 0)).save(place / f"{number % 3}.png")
    return tmp_path / "data"


def version(name: str, counts: Mapping[str, list[int]] | None, **more: Any) -> Version:
    totals = {domain: sum(row) for domain, row in (counts or {}).items()}
    return Version(**{"name": name, "about": "", "images": 0, "totals": totals, "counts": counts, **more})


def manifest(*versions: Version) -> Manifest:
    words = dict.fromkeys(("name", "title", "folder", "licence", "citation", "homepage", "about"), "")
    return Manifest(**words, domains=["a", "b"], classes=list(CLASSES), versions=list(versions), downloads=[])


RIGHT = version("right", {"a": [3, 3], "b": [3, 3]})


def found(root: Path, known: Manifest | None = None) -> list[tuple[str, str]]:
    listing = list_folder(root)
    _, findings = verify(listing, prepare_store(listing, LogProgress()), known)
    return [(finding.kind, finding.text) for finding in findings]


def test_whole_data_has_no_findings_with_a_manifest_or_without(root: Path) -> None:
    assert found(root) == found(root, manifest(RIGHT)) == []


def test_missing_and_extra_images_are_counted_by_domain_and_class(root: Path) -> None:
    (root / "a/cat/0.png").unlink()
    shutil.copy(root / "a/dog/0.png", root / "a/dog/copy.png")
    shutil.rmtree(root / "b/cat")
    assert found(root, manifest(RIGHT)) == [
        ("missing", "a/cat has 2 of 3 images"),
        ("extra", "a/dog has 4 images, 1 more than the expected 3"),
        ("missing", "b/cat has 0 of 3 images"),
    ]
    assert found(root) == [], "the expected content is unknown"


def test_unknown_classes_and_domains_are_extra(root: Path) -> None:
    shutil.copytree(root / "a/cat", root / "a/cow")
    shutil.move(root / "a/cow/0.png", root / "a/cow/only.png")
    for name in ("1.png", "2.png"):
        (root / "a/cow" / name).unlink()
    Image.new("RGB", (8, 6), (0, 99, 0)).save(root / "a/cow/only.png")
    (root / "c/cat").mkdir(parents=True)
    Image.new("RGB", (8, 6), (0, 0, 99)).save(root / "c/cat/0.png")
    assert found(root, manifest(RIGHT)) == [
        ("extra", "a/cow has 1 images, 1 more than the expected 0"),
        ("extra", "c/cat has 1 images, 1 more than the expected 0"),
    ]


def test_corrupt_and_stray_files_are_named(root: Path) -> None:
    (root / "a/cat/0.png").write_bytes(b"damaged")
    (root / "b/dog/1.png").unlink()
    (root / "b/dog/1.png").symlink_to(root / "nowhere")
    (root / "b/notes.txt").write_text("")
    kinds = dict.fromkeys(("corrupt", "ignored"), "")
    for kind, text in found(root, manifest(RIGHT)):
        kinds[kind] += text
    assert kinds.keys() == {"corrupt", "ignored"}, "they exist, so none is missing"
    assert f"{root}/a/cat/0.png cannot be read: it is damaged" in kinds["corrupt"]
    assert f"{root}/b/dog/1.png cannot be read: No such file or directory" in kinds["corrupt"]
    assert kinds["ignored"] == "b/notes.txt is not an image file in a class folder"


def test_copies_matter_across_domains_and_under_two_classes(root: Path) -> None:
    shutil.copy(root / "a/cat/0.png", root / "b/cat/copy.png")
    shutil.copy(root / "a/cat/1.png", root / "a/dog/copy.png")
    shutil.copy(root / "b/dog/2.png", root / "b/dog/copy.png")
    assert found(root) == [
        ("duplicate", "a/cat/0.png = b/cat/copy.png in 2 domains"),
        ("duplicate", "a/cat/1.png = a/dog/copy.png under 2 classes"),
    ]


def test_data_is_compared_with_the_nearest_version(root: Path) -> None:
    versions = [
        version("small", {"a": [1, 1], "b": [1, 1]}),
        version("near", {"a": [3, 3], "b": [3, 2]}),
        version("large", {"a": [9, 9], "b": [9, 9]}),
        version("other domains", {"x": [3, 3], "y": [3, 3]}),
    ]
    nearest, findings = compare(list_folder(root), manifest(*versions))
    assert nearest.name == "near"
    assert findings == [Finding("extra", "b/dog has 3 images, 1 more than the expected 2")]


def test_a_version_may_know_totals_by_domain_or_by_official_part(root: Path) -> None:
    by_domain = manifest(version("", None, totals={"a": 6, "b": 7}))
    assert compare(list_folder(root), by_domain)[1] == [Finding("missing", "b has 6 of 7 images")]
    files = list_folder(root).files
    rows = [(file, "some place", "cat") for file in files]
    listing = make_listing(root, rows, parts=["train"] * 10 + ["test"] * 2)
    by_part = manifest(version("", None, totals={"train": 9, "test": 2}))
    assert compare(listing, by_part)[1] == [Finding("extra", "train has 10 images, 1 more than the expected 9")]


def tree(root: Path) -> str:
    """Hash name, zero byte and digest of every file, in the order of the names."""
    digest = hashlib.sha256()
    for file in sorted(str(path.relative_to(root)) for path in root.rglob("*.png")):
        digest.update(os.fsencode(file) + b"\0" + hashlib.sha256((root / file).read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


@pytest.mark.parametrize("name", ["9.png", os.fsdecode(b"\xff.png")])
def test_the_tree_digest_notices_one_other_byte(root: Path, name: str) -> None:
    (root / "a/cat/0.png").rename(root / "a/cat" / name)
    published = manifest(version("", RIGHT.counts, tree=tree(root)))
    assert compare(list_folder(root), published)[1] == []
    with (root / "a/cat" / name).open("ab") as file:
        file.write(b"\0")
    wanted = [Finding("changed", "all counts are right, but at least one file differs from the published one")]
    assert compare(list_folder(root), published)[1] == wanted


def test_a_file_that_cannot_be_opened_is_not_the_published_one(root: Path) -> None:
    published = manifest(version("", RIGHT.counts, tree=tree(root)))
    (root / "a/cat/0.png").unlink()
    (root / "a/cat/0.png").mkdir()
    assert [kind for kind, _ in found(root, published)] == ["corrupt", "changed"]


def color(domain: int, label: int) -> tuple[int, int, int]:
    """Return a colour that neither the text nor the background has."""
    return 255, 2 * label, 5 * domain


def examples(
    domains: Sequence[str],
    classes: Sequence[str],
    *,
    missing: Sequence[tuple[int, int]] = (),
    size: tuple[int, int] = (4, 4),
    each: int = 1,
) -> Examples:
    """Images of one colour for every domain and class."""
    cells = [(d, c) for d in range(len(domains)) for c in range(len(classes)) if (d, c) not in missing] * each
    pixels = [torch.tensor(color(d, c), dtype=torch.uint8).view(3, 1, 1).expand(3, *size) for d, c in cells]
    d, c = torch.tensor(cells).T
    return Examples(Images.pack(pixels), c, d, tuple(classes), tuple(domains), fingerprint="")


def where(sheet: Image.Image, wanted: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Return left, top, width and height of the area of a colour, which must contain no other colour."""
    y, x = np.nonzero((np.asarray(sheet) == wanted).all(-1))
    left, top, width, height = int(x.min()), int(y.min()), int(np.ptp(x)) + 1, int(np.ptp(y)) + 1
    assert len(x) == width * height
    return left, top, width, height


@pytest.mark.parametrize("each", [1, 2, 5])
def test_every_cell_shows_its_domain_and_class(each: int) -> None:
    sheet = contact_sheet(examples(("photo", "sketch", "paint"), ("ant", "bee"), each=each))
    places = {(d, c): where(sheet, color(d, c)) for d in range(3) for c in range(2)}
    assert {place[2:] for place in places.values()} == {(96, 96)}
    left, top = places[0, 0][:2]
    assert {cell: place[:2] for cell, place in places.items()} == {
        (d, c): (left + 100 * c, top + 100 * d) for d in range(3) for c in range(2)
    }
    assert sheet.width >= left + 2 * 100
    assert sheet.height >= top + 3 * 100


@pytest.mark.parametrize(
    ("size", "wanted"), [((20, 40), (96, 48)), ((640, 320), (48, 96)), ((1, 300), (96, 1)), ((96, 96), (96, 96))]
)
def test_images_keep_their_ratio_in_the_middle_of_their_cell(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    left, top, *shown = where(contact_sheet(examples(("a",), ("b",), size=size)), color(0, 0))
    cell = where(contact_sheet(examples(("a",), ("b",))), color(0, 0))
    assert tuple(shown) == wanted
    assert (left - cell[0], top - cell[1]) == ((96 - wanted[0]) // 2, (96 - wanted[1]) // 2)


def test_a_class_that_a_domain_lacks_is_an_empty_cell() -> None:
    whole = contact_sheet(examples(("a", "b"), ("x", "y")))
    sheet = contact_sheet(examples(("a", "b"), ("x", "y"), missing=[(0, 1)]))
    left, top = where(whole, color(0, 1))[:2]
    cell = np.asarray(sheet)[top : top + 96, left : left + 96]
    assert (cell[[0, 0, -1, -1], [0, -1, 0, -1]] == EMPTY).all()
    assert (cell != EMPTY).any(), "it is labelled as empty"
    assert not (np.asarray(sheet) == color(0, 1)).all(-1).any()


def test_of_very_many_evenly_spaced_ones_are_shown_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    real = ImageDraw.ImageDraw.text

    def text(self: ImageDraw.ImageDraw, place: Any, words: str, *more: Any, **settings: Any) -> None:
        texts.append(words)
        real(self, place, words, *more, **settings)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    domains, classes = [f"d{i}" for i in range(47)], [f"c{i}" for i in range(118)]
    sheet = contact_sheet(examples(domains, classes))
    shown = sheet.getcolors(10_000)
    assert shown is not None
    wanted = {color(d, c): 96 * 96 for d in range(0, 47, 2) for c in range(0, 118, 3)}
    assert len(wanted) == 24 * 40
    cells = {pixel: number for number, pixel in shown if pixel[0] == 255 and pixel != (255, 255, 255)}  # type: ignore[index]
    assert cells == wanted
    assert texts[-1] == "5,546 images, 24 of 47 domains, 40 of 118 classes"
    assert {"d0", "d46", "c0", "c117"} <= set(texts)
    texts.clear()
    contact_sheet(examples(domains[:24], classes[:40]))
    assert texts[-1] == "960 images, 24 domains, 40 classes"


@pytest.mark.parametrize(
    "name", ["new\nline", "car\r\nriage", os.fsdecode(b"\xff"), "🐈", "long " * 30, "\t", "\x1b[1m"]
)
def test_any_name_can_be_written_on_the_sheet(name: str) -> None:
    sheet = contact_sheet(examples((name, "b"), ("c", name)))
    assert where(sheet, color(0, 0))[2:] == where(sheet, color(1, 1))[2:] == (96, 96)


@pytest.mark.parametrize("channels", [1, 2])
def test_images_of_one_or_two_channels_are_shown(channels: int) -> None:
    inputs = Images.pack(torch.full((1, channels, 3, 3), 200, dtype=torch.uint8))
    sheet = contact_sheet(Examples(inputs, torch.tensor([0]), torch.tensor([0]), ("a",), ("b",), fingerprint=""))
    assert where(sheet, (200, 200, 200) if channels == 1 else (200, 200, 0))[2:] == (96, 96)


def test_features_have_no_contact_sheet() -> None:
    features = Examples(
        torch.rand(2, 3), torch.tensor([0, 1]), torch.tensor([0, 0]), ("a", "b"), ("c",), fingerprint=""
    )
    with pytest.raises(MessiError, match="features and no images"):
        contact_sheet(features)


def test_the_sheet_of_a_folder_shows_its_images(root: Path) -> None:
    """The middle image of the three in each class has the red values 1, 4, 7 and 10."""
    sheet = contact_sheet(Folder(path=str(root)).load())
    assert [where(sheet, (red, 0, 0))[2:] for red in (1, 4, 7, 10)] == [(96, 72)] * 4
