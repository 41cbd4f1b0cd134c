"""How unusual and damaged image files are read or refused."""

import io
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from messi.core.errors import MessiError
from messi.data.datasets.folder import Folder
from messi.data.image_files import read_picture, to_picture, to_tensor
from messi.data.images import Images
from messi.data.progress import LogProgress

NOISE = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
ORIENTATION = 0x0112
MakeFolder = Callable[..., Path]


def encoded(picture: Image.Image, form: str, **settings: Any) -> bytes:
    target = io.BytesIO()
    picture.save(target, form, **settings)
    return target.getvalue()


def read(tmp_path: Path, content: bytes, name: str = "picture.img") -> Tensor:
    path = tmp_path / name
    path.write_bytes(content)
    return read_picture(path)


def png(width: int, height: int, depth: int, color: int, rows: bytes) -> bytes:
    """Return a PNG file with any header; Pillow writes neither 16-bit colours nor false headers."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def frames() -> list[Image.Image]:
    """Three frames of noise, each a rotation of the one before."""
    return [Image.fromarray(np.rot90(NOISE, 2 * turn).copy()) for turn in range(3)]


def files() -> dict[str, bytes]:
    """Return valid files of every format, most of them lossless."""
    first, *others = frames()
    exif = Image.Exif()
    exif[ORIENTATION], exif[0x010E], exif[0x011A] = 1, "noise", 72.0
    colors = first.quantize(16)
    return {
        "JPEG": encoded(first, "JPEG", exif=exif),
        "progressive JPEG": encoded(first, "JPEG", progressive=True),
        "CMYK JPEG": encoded(first.convert("CMYK"), "JPEG"),
        "PNG": encoded(first, "PNG", exif=exif),
        "palette PNG": encoded(colors, "PNG", transparency=bytes(range(16))),
        "16-bit PNG": encoded(Image.fromarray(NOISE[:, :, 0].astype(np.uint16) * 257), "PNG"),
        "APNG": encoded(first, "PNG", save_all=True, append_images=others),
        "GIF": encoded(colors, "GIF", save_all=True, append_images=[other.quantize(16) for other in others]),
        "TIFF": encoded(first, "TIFF", exif=exif),
        "LZW TIFF": encoded(first, "TIFF", compression="tiff_lzw"),
        "WebP": encoded(first, "WEBP", exif=exif),
        "animated WebP": encoded(first, "WEBP", lossless=True, save_all=True, append_images=others),
        "BMP": encoded(first, "BMP"),
        "PPM": encoded(first, "PPM"),
    }


FILES = files()
LOSSLESS = ("PNG", "APNG", "TIFF", "LZW TIFF", "animated WebP", "BMP", "PPM")


@pytest.mark.parametrize("kind", LOSSLESS)
def test_the_content_decides_the_format_and_the_first_frame_is_used(kind: str, tmp_path: Path) -> None:
    assert torch.equal(read(tmp_path, FILES[kind], "noise.jpg"), torch.from_numpy(NOISE).permute(2, 0, 1))


def test_the_first_frame_of_a_gif_is_used(tmp_path: Path) -> None:
    colors = ["#ff0000", "#00ff00", "#0000ff"]
    first, *others = [Image.new("RGB", (6, 5), color) for color in colors]
    picture = read(tmp_path, encoded(first, "GIF", save_all=True, append_images=others, duration=10))
    assert torch.equal(picture, torch.tensor([255, 0, 0]).view(3, 1, 1).expand(3, 5, 6))


@pytest.mark.parametrize("kind", FILES)
def test_a_truncated_file_is_refused_unless_its_image_is_complete(kind: str, tmp_path: Path) -> None:
    """The end of a PNG or GIF and later frames of an animation may be missing; no pixel is ever invented."""
    content = FILES[kind]
    whole = read(tmp_path, content)
    harmless = []
    for length in (*range(0, len(content) - 50, 7), *range(len(content) - 50, len(content))):
        try:
            assert torch.equal(read(tmp_path, content[:length]), whole), length
        except MessiError:
            continue
        harmless.append(length)
    if kind not in ("APNG", "GIF", "animated WebP"):
        end = 20 if "PNG" in kind else 0
        assert harmless == list(range(len(content) - end, len(content)))


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 5000, b"These are no pixels.\n" * 50, np.random.default_rng(1).bytes(5000), b"<svg></svg>"],
    ids=["empty", "zeros", "text", "random", "svg"],
)
def test_a_file_that_is_not_an_image_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    sentence = f"The image {tmp_path}/x.jpg cannot be read: it is damaged or not an image. Replace or remove it."
    with pytest.raises(MessiError, match=f"^{re.escape(sentence)}$"):
        read(tmp_path, content, "x.jpg")


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_read_or_refused_without_other_errors(kind: str, tmp_path: Path) -> None:
    """A few bytes are changed at random, half the time among the first ones, where the format keeps its settings."""
    rng = np.random.default_rng(2)
    for _ in range(150):
        content = bytearray(FILES[kind])
        within = len(content) if rng.random() < 0.5 else min(200, len(content))
        for place in rng.integers(0, within, rng.integers(1, 6)):
            content[place] = rng.choice([0, 1, 127, 128, 255, int(rng.integers(0, 256))])
        try:
            picture = read(tmp_path, bytes(content))
        except MessiError as error:
            assert str(error).startswith(f"The image {tmp_path}/picture.img cannot be read: ")  # noqa: PT017
            assert str(error).endswith(". Replace or remove it.")  # noqa: PT017
            assert ".." not in str(error)  # noqa: PT017
        else:
            assert picture.dtype == torch.uint8
            assert len(picture) == 3
            assert 1 <= min(picture.shape[1:]) <= max(picture.shape[1:]) <= 320


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    """Cyan ink absorbs red light; at quality 100, a JPEG of one colour is off by one or two roundings."""
    picture = read(tmp_path, encoded(Image.new("CMYK", (16, 16), (255, 0, 64, 0)), "JPEG", quality=100))
    wanted = torch.tensor([0, 255, 255 - 64]).view(3, 1, 1)
    assert (picture.int() - wanted).abs().max() <= 2


@pytest.mark.parametrize(
    ("form", "settings"),
    [
        ("PNG", {}),
        ("PNG", {"transparency": 1}),
        ("PNG", {"transparency": bytes([0, 128, 255])}),
        ("GIF", {}),
        ("GIF", {"transparency": 1}),
    ],
)
def test_palettes_become_rgb_and_their_transparency_is_dropped(
    form: str, settings: dict[str, object], tmp_path: Path
) -> None:
    picture = Image.new("P", (3, 1))
    picture.putdata([0, 1, 2])
    picture.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    pixels = read(tmp_path, encoded(picture, form, **settings)).permute(1, 2, 0)
    assert pixels.tolist() == [[[10, 20, 30], [40, 50, 60], [70, 80, 90]]]


@pytest.mark.parametrize(
    ("mode", "color", "wanted"),
    [
        ("LA", (90, 0), (90, 90, 90)),
        ("RGBA", (10, 20, 30, 0), (10, 20, 30)),
        ("RGBA", (10, 20, 30, 77), (10, 20, 30)),
        ("L", 200, (200, 200, 200)),
        ("1", 1, (255, 255, 255)),
        ("1", 0, (0, 0, 0)),
    ],
)
def test_transparency_is_dropped_and_gray_becomes_rgb(
    mode: str, color: int | tuple[int, ...], wanted: tuple[int, int, int], tmp_path: Path
) -> None:
    picture = read(tmp_path, encoded(Image.new(mode, (3, 2), color), "PNG"))
    assert torch.equal(picture, torch.tensor(wanted).view(3, 1, 1).expand(3, 2, 3))


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bits_of_gray_are_cut_to_the_upper_eight(form: str, tmp_path: Path) -> None:
    values = np.array([[0, 255, 256, 511, 512, 32768, 65279, 65535]], np.uint16)
    picture = read(tmp_path, encoded(Image.fromarray(values), form))
    assert picture.tolist() == [[[0, 0, 1, 1, 2, 128, 254, 255]]] * 3


def test_sixteen_bits_of_color_are_cut_to_the_upper_eight(tmp_path: Path) -> None:
    row = b"\0" + struct.pack(">6H", 65535, 256, 255, 32768, 0, 511)
    picture = read(tmp_path, png(2, 1, depth=16, color=2, rows=row))
    assert picture.permute(1, 2, 0).tolist() == [[[255, 1, 0], [128, 0, 1]]]


@pytest.mark.parametrize(("kind", "mode"), [(np.float32, "F"), (np.int32, "I")])
def test_pixels_of_unknown_range_are_refused_by_their_mode(kind: type, mode: str, tmp_path: Path) -> None:
    content = encoded(Image.fromarray(np.ones((4, 4), kind)), "TIFF")
    with pytest.raises(
        MessiError, match=rf"x\.tif cannot be read: pixels of mode {mode} have no known range; save them"
    ):
        read(tmp_path, content, "x.tif")


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((1, 1), (1, 1)),
        ((20_000, 20), (320, 1)),
        ((20, 20_000), (1, 320)),
        ((321, 100), (320, 100)),
        ((320, 1), (320, 1)),
    ],
)
def test_sizes_are_bounded_and_never_zero(size: tuple[int, int], wanted: tuple[int, int], tmp_path: Path) -> None:
    picture = read(tmp_path, encoded(Image.new("RGB", size, (1, 2, 3)), "PNG"))
    assert (picture.shape[2], picture.shape[1]) == wanted
    assert picture.permute(1, 2, 0).unique(dim=0).tolist() == [[[1, 2, 3]] * wanted[0]]


def stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    """Return an image as stored in a file; EXIF states on which side its first row and first column belong."""
    top_left: dict[int, np.ndarray] = {
        1: upright,  # top, left
        2: upright[:, ::-1],  # top, right
        3: upright[::-1, ::-1],  # bottom, right
        4: upright[::-1],  # bottom, left
        5: upright.swapaxes(0, 1),  # left, top
        6: upright[:, ::-1].swapaxes(0, 1),  # right, top
        7: upright[::-1, ::-1].swapaxes(0, 1),  # right, bottom
        8: upright[::-1].swapaxes(0, 1),  # left, bottom
    }
    return top_left[orientation]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP", "16-bit PNG", "16-bit TIFF"])
def test_exif_rotation_is_applied(kind: str, tmp_path: Path) -> None:
    """A file with an orientation equals the rotated image of the same file without one."""
    form = kind.removeprefix("16-bit ")
    pixels = NOISE if kind == form else NOISE[:, :, 0].astype(np.uint16) * 257
    settings = {"lossless": True} if form == "WEBP" else {}
    picture = Image.fromarray(pixels)
    plain = read(tmp_path, encoded(picture, form, **settings)).permute(1, 2, 0).numpy()
    exif = Image.Exif()
    for orientation in range(1, 9):
        exif[ORIENTATION] = orientation
        turned = read(tmp_path, encoded(picture, form, exif=exif, **settings)).permute(1, 2, 0).numpy()
        assert np.array_equal(stored(turned, orientation), plain), f"orientation {orientation}"


def test_a_rotated_image_with_unusual_exif_data_is_read(tmp_path: Path) -> None:
    """Its width is stored as text, which Pillow can read but not write."""
    width, turn = struct.pack(">HHI4s", 0x0100, 2, 4, b"abc"), struct.pack(">HHIHH", ORIENTATION, 3, 1, 6, 0)
    exif = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 2) + width + turn + struct.pack(">I", 0)
    assert read(tmp_path, encoded(Image.fromarray(NOISE), "JPEG", exif=exif)).shape == (3, 32, 24)


@pytest.mark.parametrize("side", [10_000, 60_000, 2**31 - 1])
def test_a_header_that_claims_a_huge_image_is_refused(side: int, tmp_path: Path) -> None:
    """Pillow only warns about the first; in the tests a warning is an error."""
    with pytest.raises(MessiError, match=r"^The image .*bomb\.png cannot be read: .*[^.]\. Replace or remove it\.$"):
        read(tmp_path, png(side, side, depth=8, color=2, rows=b"\0" * 100), "bomb.png")


def test_a_large_image_is_read_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow warns above its limit and refuses above twice its limit."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 32 - 1)
    (tmp_path / "data" / "a" / "b").mkdir(parents=True)
    read(tmp_path, FILES["PNG"], "data/a/b/large.png")
    assert len(Folder(path=str(tmp_path / "data")).load()) == 1


def test_a_large_jpeg_decoded_at_half_size_looks_like_the_full_one(tmp_path: Path) -> None:
    """Waves, edges and noise, 0 to 255; the error of the JPEG itself exceeds half a grey level on average."""
    y, x = np.mgrid[0:1500, 0:2000]
    noise = np.random.default_rng(3).normal(0, 8, (1500, 2000))
    waves = [127 + 60 * np.sin(x / 37 + c) + 50 * np.cos(y / 23 + x / 91) + noise for c in range(3)]
    pixels = np.stack(waves, -1).clip(0, 255).astype(np.uint8)
    pixels[400:900, 500:1300] = 255 - pixels[400:900, 500:1300]
    path = tmp_path / "large.jpg"
    Image.fromarray(pixels).save(path, quality=90)
    with Image.open(path) as opened:
        whole = np.asarray(opened.resize((320, 240), Image.Resampling.BICUBIC)).astype(int)
    quick = read_picture(path)
    with Image.open(path) as opened:
        assert not torch.equal(quick, to_tensor(opened)), "it is not decoded at full size"
        assert opened.size == (2000, 1500), "but an image passed by the caller is unchanged"
    assert np.abs(quick.permute(1, 2, 0).numpy() - whole).mean() < 0.5


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may read everything, so become another user."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_that_cannot_be_opened_is_refused_with_the_reason_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "link.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "secret.jpg").write_bytes(FILES["JPEG"])
    (tmp_path / "secret.jpg").chmod(0)
    with pytest.raises(MessiError, match=r"folder\.jpg cannot be read: Is a directory\. Replace"):
        read_picture(tmp_path / "folder.jpg")
    with pytest.raises(MessiError, match=r"link\.jpg cannot be read: No such file or directory\. Replace"):
        read_picture(tmp_path / "link.jpg")
    with unprivileged(), pytest.raises(MessiError, match=r"secret\.jpg cannot be read: Permission denied\. Replace"):
        read_picture(tmp_path / "secret.jpg")


class Notes(LogProgress):
    """Collects the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def noted(self, text: str) -> None:
        self.notes.append(text)


def damage(root: Path) -> list[str]:
    """Damage five images of a folder, each in a different way, and return their names in order."""
    place = root / "paint/across"
    (place / "0.png").write_bytes((place / "0.png").read_bytes()[:-40])
    (place / "1.png").write_bytes(b"")
    (place / "2.png").unlink()
    (place / "2.png").mkdir()
    (place / "3.png").unlink()
    (place / "3.png").symlink_to(place / "nowhere.png")
    (place / "4.png").write_bytes(png(60_000, 60_000, depth=8, color=2, rows=b""))
    return [f"paint/across/{i}.png" for i in range(5)]


def test_damaged_images_are_left_out_by_name_on_request(make_folder: MakeFolder) -> None:
    root = make_folder(images=6)
    names = damage(root)
    progress = Notes()
    examples = Folder(path=str(root), damaged="leave_out").load(progress)
    assert isinstance(examples.inputs, Images)
    assert len(examples) == len(examples.inputs) == 3 * 2 * 6 - 5
    assert torch.equal(examples.inputs[0], read_picture(root / "paint/across/5.png"))
    (note,) = progress.notes
    assert note.startswith("5 of 36 images cannot be read and are left out: ")
    assert set(note.removesuffix(".").partition(": ")[2].split(", ")) == set(names)


def test_damaged_images_are_refused_by_name_by_default(make_folder: MakeFolder) -> None:
    root = make_folder(images=6)
    names = damage(root)
    with pytest.raises(MessiError, match=r"^5 of 36 images cannot be read\. .*use --damaged leave_out\.$") as caught:
        Folder(path=str(root)).load(Notes())
    assert sum(name in str(caught.value) for name in names) == 3, "the first three are named"


def test_data_without_a_readable_image_is_refused_even_on_request(make_folder: MakeFolder) -> None:
    root = make_folder(domains=("photo",), images=1)
    for file in root.rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(MessiError, match=r"^2 of 2 images cannot be read\.") as caught:
        Folder(path=str(root), damaged="leave_out").load(Notes())
    assert "leave_out" not in str(caught.value), "it was already requested"


def test_images_are_upright_bounded_and_survive_a_round_trip(tmp_path: Path) -> None:
    tall = Image.new("RGB", (100, 800), (255, 0, 0))
    exif = tall.getexif()
    exif[0x0112] = 6
    tall.save(tmp_path / "turned.jpg", exif=exif)
    assert read_picture(tmp_path / "turned.jpg").shape == (3, 40, 320)
    pixels = torch.randint(256, (2, 28, 28), dtype=torch.uint8)
    to_picture(pixels).save(tmp_path / "two.png")
    assert torch.equal(read_picture(tmp_path / "two.png", channels=2), pixels)
