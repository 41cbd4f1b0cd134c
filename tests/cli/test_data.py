"""``messi data`` as a user runs it, on real files."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from messi.data.manifest import read_manifest
from messi.data.store import store_folder
from tests.command import messi

MakeFolder = Callable[..., Path]


def data(*arguments: str | Path, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return messi("data", *arguments, cwd=cwd, **environment)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_list_shows_every_data_set_and_where_it_is_stored(home: Path, tmp_path: Path) -> None:
    for domain in read_manifest("pacs").domains:
        (home / "data" / "PACS" / domain).mkdir(parents=True)
    done = data("list", cwd=tmp_path, COLUMNS="300")
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert {"folder", "table", "pacs", "vlcs", "domain_net", "rotated_mnist", "two_subsets"} <= lines.keys()
    assert f"4        7        9,991               {home}/data/PACS" in lines["pacs"]
    assert "24,788 or 24,330" in lines["terra_incognita"]
    assert "not downloaded; use 'messi data prepare'" in lines["vlcs"]
    assert "your own data; give its path" in lines["folder"]
    assert "generated" in lines["two_subsets"]


def test_prepare_decodes_once_and_prints_the_same_summary(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=2)
    first, second = (data("prepare", "images", cwd=tmp_path) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stderr.startswith(f"decoding 12 images into {store_folder(root)} (about 46.1 kB)\ndone after ")
    assert second.stderr == ""
    assert first.stdout == second.stdout
    assert first.stdout.startswith("12 examples, 3 domains, 2 classes, images 32 x 40; fingerprint ")


def test_verify_exits_with_0_for_complete_data_and_lists_problems_otherwise(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    root = make_folder(images=30)
    done = data("verify", root, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "180 images, 3 domains, 2 classes\nno problems found\n")
    for file in (root / "photo/across").iterdir():
        shutil.copy(file, root / "paint/across" / file.name)
    (root / "sketch/upright/0.png").write_bytes(b"damaged")
    (root / "sketch/notes.txt").write_text("")
    done = data("verify", root, cwd=tmp_path)
    assert done.returncode == 1
    _, *found = done.stdout.splitlines()
    kinds = [line.split()[0] for line in found]
    assert kinds == ["ignored", "corrupt", *["duplicate"] * 21], "of 30 copies 20 are named"
    assert found[0] == "ignored   sketch/notes.txt is not an image file in a class folder"
    assert "sketch/upright/0.png cannot be read: it is damaged or not an image" in found[1]
    assert found[2] == "duplicate paint/across/0.png = photo/across/0.png in 2 domains"
    assert found[-1] == "duplicate and 10 more"


def test_verify_compares_published_data_with_its_manifest(tmp_path: Path) -> None:
    manifest = read_manifest("pacs")
    for d, domain in enumerate(manifest.domains):
        for c, label in enumerate(manifest.classes):
            (tmp_path / "copy" / domain / label).mkdir(parents=True)
            Image.new("RGB", (4, 4), (d, c, 0)).save(tmp_path / "copy" / domain / label / "1.jpg", format="PNG")
    done = data("verify", "pacs", "--path", "copy", cwd=tmp_path)
    assert done.returncode == 1
    title, compared, *found = done.stdout.splitlines()
    assert title == "28 images, 4 domains, 7 classes"
    assert compared.startswith(f"compared with {manifest.title}, version '")
    assert compared.endswith("(9,991 images)")
    assert found[-1] == "missing   and 8 more"
    assert found[0].startswith(f"missing   {manifest.domains[0]}/{manifest.classes[0]} has 1 of ")


def test_show_prints_the_table_and_writes_the_picture(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=3)
    shutil.rmtree(root / "sketch/across")
    (root / "paint/upright/0.png").unlink()
    done = data("show", "images", "--out", "sheet.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = rows(done.stdout)
    for row in (
        ["domain", "across", "upright", "all"],
        ["paint", "3", "2", "5"],
        ["photo", "3", "3", "6"],
        ["sketch", "0", "3", "3"],
        ["all", "6", "8", "14"],
        ["picture", "sheet.png"],
    ):
        assert row in table
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.width >= 520
        assert sheet.height > 3 * 100
    assert {file.name for file in tmp_path.iterdir()} == {"images", "home", "sheet.png"}


def test_any_names_can_be_shown(tmp_path: Path) -> None:
    """A class may have the name of a column, and the name of a domain may be bytes that are not text."""
    odd = os.fsdecode(b"caf\xe9")
    for domain, label in (("photo", "all"), ("photo", "domain"), (odd, "all")):
        (tmp_path / "data" / domain / label).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "data" / domain / label / "1.png")
    (tmp_path / "data" / f"{odd}.txt").write_text("")
    command = [sys.executable, "-m", "messi", "data", "show", "data"]
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=strict)
    assert done.returncode == 0, done.stderr
    assert r"caf\udce9.txt" in done.stderr
    table = rows(done.stdout)
    assert ["(domain)", "all", "domain", "(all)"] in table
    assert [r"caf\udce9", "1", "0", "1"] in table
    assert ["(all)", "2", "1", "3"] in table
    assert (tmp_path / "data.png").is_file()


def test_names_that_look_like_markup_are_shown_unchanged(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "1.png")
    (tmp_path / "table.csv").write_text("path,label,domain\n1.png,[/red],[bold]\n1.png,[red],[bold]\n")
    done = data("show", "table.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ["domain", "[/red]", "[red]", "all"] in rows(done.stdout)
    assert ["[bold]", "1", "1", "2"] in rows(done.stdout)


def test_an_image_outside_a_class_folder_is_reported(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=2)
    shutil.copy(root / "photo/across/0.png", root / "photo/lost.png")
    done = data("prepare", root, cwd=tmp_path)
    assert "Ignored, because they are not image files in a class folder: photo/lost.png." in done.stderr


def test_damaged_images_are_refused_or_left_out_by_name(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=2)
    (root / "photo/across/1.png").write_bytes(b"")
    refused = data("prepare", root, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "photo/across/1.png cannot be read: it is damaged or not an image." in refused.stderr
    assert "use --damaged leave_out" in refused.stderr
    done = data("prepare", root, "--damaged", "leave_out", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("11 examples")
    assert "1 of 12 images cannot be read and are left out: photo/across/1.png." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("prepare", "nowhere"), "There is no folder, file or data set 'nowhere'; the data sets are: "),
        (("prepare",), "Name the data first: 'messi data prepare DATA'"),
        (("show", "--out", "x.png"), "Name the data first: 'messi data show DATA'"),
        (("verfy", "pacs"), "Did you mean 'verify'?"),
        (("verify", "two_subsets"), "'two_subsets' has no image files to verify; name a folder, "),
        (("verify", "pacs", "--path", "."), "does not contain PACS: it must contain the folders art_painting, "),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    done = data(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_without_a_subcommand_all_are_listed(tmp_path: Path) -> None:
    done = data(cwd=tmp_path)
    assert done.returncode == 0
    assert [row[0] for row in rows(done.stdout) if row][1:5] == ["list", "prepare", "verify", "show"]


@pytest.mark.parametrize("word", ["prepare", "verify", "show"])
def test_help_needs_no_data(word: str, tmp_path: Path) -> None:
    done = data(word, "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: messi data {word} DATA")
    assert f"'messi data {word} DATA --help'" in done.stdout
