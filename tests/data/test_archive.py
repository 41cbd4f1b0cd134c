import hashlib
import io
import itertools
import os
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from messi.core.errors import MessiError
from messi.data.archive import unpack

FILES = {"photo/dog/1.jpg": b"one" * 1000, "photo/Hündin ä/犬.jpg": b"two" * 1000, "sketch/empty.jpg": b""}
FORMATS = ("zip", "tar", "gz", "bz2")


def noise(number: int) -> bytes:
    return hashlib.shake_256(bytes([number])).digest(3000)


def pack(path: Path, kind: str, files: dict[str, bytes] | None = None) -> Path:
    """Write an archive, whose name need not match its format."""
    files = FILES if files is None else files
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.mkdir("nothing")
            for name, content in files.items():
                packed.writestr(name, content)
    else:
        entries = [entry("./", type=tarfile.DIRTYPE), entry("nothing", type=tarfile.DIRTYPE, mode=0o700)]
        write_tar(path, *entries, *(entry(name, mode=0o400) for name in files), kind=kind, files=files)
    return path


def entry(name: str, **values: object) -> tarfile.TarInfo:
    result = tarfile.TarInfo(name)
    for key, value in values.items():
        setattr(result, key, value)
    return result


def write_tar(path: Path, *entries: tarfile.TarInfo, kind: str = "tar", files: dict[str, bytes] | None = None) -> Path:
    with tarfile.open(path, "w" if kind == "tar" else f"w:{kind}") as packed:  # type: ignore[call-overload]
        for item in entries:
            content = (files or {}).get(item.name, b"")
            item.size = len(content)
            packed.addfile(item, io.BytesIO(content))
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def assert_refused(archive: Path, *words: str) -> None:
    """Assert that unpacking fails with one sentence that contains these words, and changes nothing."""
    root = archive.parent
    before = sorted(root.rglob("*"))
    with pytest.raises(MessiError) as caught:
        unpack(archive, root / "place/data")
    assert all(word in str(caught.value) for word in (str(archive), *words)), str(caught.value)
    (root / "place").rmdir()
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("kind", FORMATS)
def test_archives_are_unpacked_regardless_of_their_name(tmp_path: Path, kind: str) -> None:
    archive = pack(tmp_path / "download", kind)
    unpack(archive, tmp_path / "new/data")
    folder = tmp_path / "new/data"
    assert contents(folder) == FILES
    assert (folder / "nothing").is_dir()
    assert list((tmp_path / "new").iterdir()) == [folder]
    for file in folder.rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) & 0o755 == (0o755 if file.is_dir() else 0o644)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../evil", "points outside"),
        ("a/../../evil", "points outside"),
        ("a/..", "points outside"),
        ("/tmp/evil", "absolute path"),  # noqa: S108
        ("C:/evil", "absolute path"),
        ("c:evil", "absolute path"),
        ("..\\evil", "backslash"),
        ("\\\\host\\evil", "backslash"),
    ],
)
@pytest.mark.parametrize("kind", ["zip", "tar", "gz"])
def test_a_path_out_of_the_folder_is_refused_before_anything_is_written(
    tmp_path: Path, kind: str, name: str, words: str
) -> None:
    archive = pack(tmp_path / "evil.zip", kind, {**FILES, name: b"evil"})
    assert_refused(archive, repr(name), words)


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../../outside", "../b/../../..", "b/../c", "..\\outside", "C:/outside"]
)
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    archive = write_tar(tmp_path / "a.tar", entry("a/file"), link("a/link", target))
    assert_refused(archive, "'a/link' is a link that points outside", repr(target))


def test_a_way_out_of_the_folder_through_several_links_is_refused(tmp_path: Path) -> None:
    """As text, a/b/up/.. is a/b; on the disk it is above the root."""
    links = [link("a/b/up", "../.."), link("out", "a/b/up/..")]
    assert_refused(write_tar(tmp_path / "a.tar", *links), "'out'", "points outside")
    behind = [link("a", "b/c"), link("a/up", "../x"), entry("b/c/file")]
    assert_refused(write_tar(tmp_path / "a.tar", *behind), "'a/up'", "below a link")


@pytest.mark.parametrize("name", ["a", "a/file"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    assert_refused(write_tar(tmp_path / "a.tar", link("a", "b"), entry(name)), repr(name), "below a link")


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "missing", "folder"])
def test_a_hard_link_must_point_to_a_file_of_the_archive(tmp_path: Path, target: str) -> None:
    hard = entry("hard", type=tarfile.LNKTYPE, linkname=target)
    archive = write_tar(tmp_path / "a.tar", entry("folder", type=tarfile.DIRTYPE), hard)
    assert_refused(archive, "'hard'", "is a link to something that is not a file in the archive")


def test_links_inside_the_archive_are_kept(tmp_path: Path) -> None:
    files = {"a/b/file": b"content"}
    links = [
        link("a/near", "b/file"),
        link("a/c/far", "../../a/b"),
        entry("d/e", type=tarfile.LNKTYPE, linkname="a/b/file"),
    ]
    unpack(write_tar(tmp_path / "a.tar", entry("a/b/file"), *links, files=files), tmp_path / "data")
    folder = tmp_path / "data"
    assert (folder / "a/near").is_symlink()
    assert (folder / "a/near").read_bytes() == (folder / "a/c/far/file").read_bytes() == b"content"
    assert (folder / "d/e").samefile(folder / "a/b/file")


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_devices_and_pipes_are_refused(tmp_path: Path, kind: bytes) -> None:
    assert_refused(write_tar(tmp_path / "a.tar", entry("odd", type=kind)), "'odd'", "neither a file nor a folder")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFBLK])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, kind: int) -> None:
    odd = zipfile.ZipInfo("odd")
    odd.external_attr = (kind | 0o644) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(odd, "/etc/passwd")
    assert_refused(tmp_path / "a.zip", "'odd'", "neither a file nor a folder")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("share", [0, 0.3, 0.6, 0.85])
def test_a_truncated_archive_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    archive = pack(tmp_path / "data.zip", kind, {f"{i}.jpg": noise(i) for i in range(20)})
    os.truncate(archive, int(archive.stat().st_size * share))
    assert_refused(archive, "cannot be unpacked", "delete it and repeat the command")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_byte_never_loses_an_entry_unnoticed(tmp_path: Path, kind: str) -> None:
    """Plain tar has checksums only for its headers, so damaged content cannot be detected there."""
    files = {f"{i}/{i}.jpg": noise(i)[:300] for i in range(3)}
    archive = pack(tmp_path / "data.zip", kind, files)
    whole = archive.read_bytes()
    places = [*range(0, len(whole) - 300, 41), *range(len(whole) - 300, len(whole))]
    for place, value in itertools.product(places, (0, 0xFF)):
        archive.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
        folder = tmp_path / f"{place}-{value}"
        try:
            unpack(archive, folder)
        except MessiError:
            assert not list(tmp_path.glob(f"{folder.name}*")), "neither the folder nor an unfinished one"
        else:
            assert len(contents(folder)) == len(files)
            assert kind == "tar" or contents(folder) == files


def test_a_missing_file_and_a_file_that_is_not_an_archive_are_named(tmp_path: Path) -> None:
    (tmp_path / "page.zip").write_text("<html>Quota exceeded</html>")
    assert_refused(tmp_path / "page.zip", "must be a complete zip or tar archive")
    assert_refused(tmp_path / "missing.zip", "No such file")


def test_an_encrypted_zip_is_named(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.zip", "zip", {"a.jpg": b"a"})
    content = archive.read_bytes()
    at = content.rindex(b"PK\x01\x02") + 8
    archive.write_bytes(content[:at] + bytes([content[at] | 1]) + content[at + 1 :])
    assert_refused(archive, "'a.jpg'", "is encrypted")


def test_an_archive_larger_than_the_free_space_is_refused(tmp_path: Path) -> None:
    """One entry claims, in the field for large files, to have 2 ** 60 bytes."""
    archive = tmp_path / "bomb.zip"
    content = pack(archive, "zip", {"bomb": b""}).read_bytes()
    huge = b"\x01\x00\x08\x00" + (2**60).to_bytes(8, "little")
    at = content.rindex(b"PK\x01\x02")
    header = bytearray(content[at:])
    header[24:28], header[30:32] = b"\xff" * 4, len(huge).to_bytes(2, "little")
    name_end = 46 + len("bomb")
    end = bytearray(header[name_end:])
    end[12:16] = (int.from_bytes(end[12:16], "little") + len(huge)).to_bytes(4, "little")
    archive.write_bytes(content[:at] + bytes(header[:name_end]) + huge + bytes(end))
    assert_refused(archive, "Unpacking", "requires 1.15e+06 TB", "free")


def test_an_existing_folder_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(MessiError, match=r"cannot be unpacked to .*data, which already exists; remove it first"):
        unpack(pack(tmp_path / "data.zip", "zip"), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("event", "number"), [("os.mkdir", 2), ("open", 2), ("os.rename", 1)])
def test_an_interrupted_extraction_is_not_taken_for_a_complete_one(
    tmp_path: Path, kind: str, event: str, number: int
) -> None:
    """The process kills itself when it creates a folder, opens the second file for writing, or renames."""
    code = """if True:
        import os, signal, sys
        from pathlib import Path
        from messi.data.archive import unpack

        archive, folder, event, number = sys.argv[1:]
        seen = 0

        def hook(name, arguments):
            global seen
            if name == event and ".unpacking/" in f"{arguments[0]}/":
                seen += 1
                if seen == int(number):
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        unpack(Path(archive), Path(folder))
    """
    archive, folder = pack(tmp_path / "data.zip", kind), tmp_path / "place/data"
    command = [sys.executable, "-c", code, str(archive), str(folder), event, str(number)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not folder.exists()
    assert (tmp_path / "place/data.unpacking").is_dir()
    (tmp_path / "place/data.unpacking/stale.jpg").write_bytes(b"of another archive")
    unpack(archive, folder)
    assert contents(folder) == FILES
    assert list((tmp_path / "place").iterdir()) == [folder]
