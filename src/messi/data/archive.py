"""Unpacking archives from untrusted sources: every entry is checked before the first one is written.

The folder gets its name only when the archive is completely unpacked. Entries are files, folders and, in tar, links;
entries and link targets must be inside the folder. A link's target may go up only at its start, and no entry may be
below a link. A path in the archive is therefore the path on the disk, and checking the former is enough.
"""

import itertools
import os
import re
import shutil
import stat
import tarfile
import textwrap
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, cast

from messi.core.errors import MessiError, writing
from messi.core.files import sync
from messi.core.lock import always, locked
from messi.data.disk import require_space

_DAMAGE = (
    *(EOFError, LZMAError, NotImplementedError, OSError, RuntimeError, ValueError),
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error),
)
"""Errors of zipfile and tarfile for unreadable archives; NotImplementedError for an unsupported compression."""
_LONGEST_ZIP_END = 22 + 0xFFFF


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip, tar or tar.gz, distinguished by content, into a folder that does not exist yet."""
    if folder.exists():
        raise MessiError(f"{archive} cannot be unpacked to {folder}, which already exists; remove it first.")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder, folder.with_name(folder.name + ".unpacking.lock"), remove=always):
        with _reading(archive), archive.open("rb") as file:
            unpack_kind = _unpack_zip if file.read(2) == b"PK" else _unpack_tar
        unpack_kind(archive, folder)


def _unpack_zip(archive: Path, folder: Path) -> None:
    with _reading(archive), zipfile.ZipFile(archive) as file:
        entries = file.infolist()
        _check_number(archive, len(entries))
        _refuse_faults(archive, [(entry.filename, _zip_fault(entry)) for entry in entries])
        _fill(archive, folder, sum(entry.file_size for entry in entries), file.extractall)


def _unpack_tar(archive: Path, folder: Path) -> None:
    with _reading(archive), _open_tar(archive) as file:
        entries = file.getmembers()
        _check_end(file)
        files = {PurePosixPath(entry.name) for entry in entries if entry.isreg()}
        links = {PurePosixPath(entry.name) for entry in entries if entry.issym()}
        _refuse_faults(archive, [(entry.name, _tar_fault(entry, files, links)) for entry in entries])
        for entry in entries:
            entry.mode = 0o755 if entry.isdir() else 0o644
        # A second line of defence, since Python 3.11.4; the checks above do not depend on it.
        file.extraction_filter = getattr(tarfile, "data_filter", None)
        _fill(archive, folder, sum(entry.size for entry in entries if entry.isreg()), file.extractall)


def _check_number(archive: Path, found: int) -> None:
    """Raise unless all entries were found: zipfile skips entries that a damaged length hides."""
    with archive.open("rb") as file:
        file.seek(max(0, archive.stat().st_size - _LONGEST_ZIP_END))
        end = file.read()
    place = end.rindex(b"PK\x05\x06")
    announced = int.from_bytes(end[place + 10 : place + 12], "little")
    if announced not in (0xFFFF, found & 0xFFFF):  # a very large number is stored elsewhere or cut off
        raise zipfile.BadZipFile("its list of entries is damaged")


def _open_tar(archive: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(archive)
    except tarfile.ReadError as error:  # its message has a line for every compression that was tried
        raise tarfile.ReadError("it is damaged or not an archive") from error


def _check_end(file: tarfile.TarFile) -> None:
    """Raise unless the entries end with an empty block: tarfile also stops at a damaged header."""
    content = cast("IO[bytes]", file.fileobj)
    content.seek(file.offset)
    if content.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it is damaged or truncated")
    while content.read(1 << 20):  # gzip compares its checksum only at its end
        pass


def _fill(archive: Path, folder: Path, size: int, extract: Callable[[Path], None]) -> None:
    """Extract into a temporary folder, then rename it."""
    require_space(folder.parent, size, f"Unpacking {archive}")
    temporary = folder.with_name(folder.name + ".unpacking")
    with writing(folder):
        if temporary.exists():
            shutil.rmtree(temporary)  # left by a process that was killed
        try:
            temporary.mkdir()
            extract(temporary)
            if hasattr(os, "sync"):  # not on Windows
                os.sync()  # all files must be on the disk before the folder has its name
            temporary.rename(folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        reason = (isinstance(error, OSError) and error.strerror) or textwrap.shorten(str(error), 100)
        raise MessiError(
            f"{archive} cannot be unpacked: {reason or 'it is damaged'}; "
            "it must be a complete zip or tar archive, so delete it and repeat the command."
        ) from error


def _refuse_faults(archive: Path, found: Collection[tuple[str, str | None]]) -> None:
    for name, fault in found:
        if fault:
            raise MessiError(
                f"{archive} is not unpacked, because its entry {name!r} {fault}; get the archive from another source."
            )


def _zip_fault(entry: zipfile.ZipInfo) -> str | None:
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is neither a file nor a folder"
    if entry.flag_bits & 1:
        return "is encrypted"
    if "\0" in entry.orig_filename:
        return "has a name with a zero byte"
    return _name_fault(entry.filename, is_folder=entry.filename.endswith("/"))


def _tar_fault(entry: tarfile.TarInfo, files: Collection[PurePosixPath], links: set[PurePosixPath]) -> str | None:
    path = PurePosixPath(entry.name)
    if fault := _name_fault(entry.name, is_folder=entry.isdir()):
        return fault
    if links.intersection(path.parents if entry.issym() else (path, *path.parents)):
        return "is below a link"
    if entry.issym():
        return _target_fault(path, entry.linkname)
    if entry.islnk():
        return (
            None
            if PurePosixPath(entry.linkname) in files
            else "is a link to something that is not a file in the archive"
        )
    return None if entry.isreg() or entry.isdir() else "is neither a file nor a folder nor a link"


def _name_fault(name: str, *, is_folder: bool) -> str | None:
    parts = PurePosixPath(name).parts
    if not parts and not is_folder:
        return "has no name"
    if ".." in parts:
        return "points outside"
    return _absolute_fault(name)


def _target_fault(link: PurePosixPath, target: str) -> str | None:
    parts = PurePosixPath(target).parts
    below = list(itertools.dropwhile(lambda part: part == "..", parts))
    outside = len(parts) - len(below) > len(link.parent.parts) or ".." in below or _absolute_fault(target)
    return f"is a link that points outside ({target!r})" if outside else None


def _absolute_fault(name: str) -> str | None:
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "has an absolute path"
    return "has a backslash in its path" if "\\" in name else None
