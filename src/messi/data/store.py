"""The decoded store: every image of a folder is decoded once into one file of pixels that all runs map into memory.

A store is a folder with ``pixels`` (uint8, one image after the other), ``journal`` (a JSON line for every decoded
file: the position and checksum of its pixels, and the size, time and digest of the image file) and ``index.csv``
(domain, class and file of every image, for other programs). Pixels are only appended, and a line is written after its
pixels are on the disk, so every entry of the journal is complete. Resuming after an interruption, a changed file, a
new file and a damaged line are therefore one case: decode what the journal lacks.
"""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from messi.core.errors import MessiError, writing
from messi.core.files import open_regular, read_regular, write_bytes
from messi.core.lock import locked
from messi.core.text import bytes_text
from messi.data.disk import require_space, store_home
from messi.data.image_files import LONGEST_SIDE, decode_all, read_size, without_warnings
from messi.data.images import Images, PixelChecksums
from messi.data.listing import Listing
from messi.data.progress import DataProgress
from messi.data.store_journal import CHANNELS, Appender, Entry, read_journal, reading

_FORMAT = 1
_SAMPLE = 256
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Store:
    """The decoded images of a listing's files."""

    folder: Path
    entries: dict[str, Entry]
    """Complete and up to date, by file."""
    failures: dict[str, str]
    """Why a file could not be decoded."""

    def images(self, files: Sequence[str]) -> Images:
        """Return the images of some files, mapped into memory."""
        entries = [self.entries[file] for file in files]
        size = max(entry.end for entry in self.entries.values())
        with reading(self.folder / "pixels"), open_regular(self.folder / "pixels") as file:
            pixels = torch.from_numpy(np.memmap(file, np.uint8, mode="c", shape=(size,)))
        expected = {entry.offset: (entry.file, entry.checksum) for entry in entries if entry.checksum}
        return Images(
            pixels=pixels,
            offsets=torch.tensor([entry.offset for entry in entries]),
            sizes=torch.tensor([[e.height for e in entries], [e.width for e in entries]]).T.contiguous(),
            channels=CHANNELS,
            checksums=PixelChecksums(self.folder, expected),
        )

    def digests(self, files: Sequence[str]) -> Tensor:
        """Return the first 64 bits of the digests of some files."""
        digits = "".join([self.entries[file].digest[:16] for file in files])
        return torch.from_numpy(np.frombuffer(bytes.fromhex(digits), "<i8").copy())

    def without_checksum(self) -> list[str]:
        """Return the files whose pixels have no checksum, because messi 0.1 decoded them."""
        return [file for file, entry in self.entries.items() if not entry.checksum]

    def fingerprint(self, listing: Listing) -> str:
        """Return a digest of the files' bytes, names, classes, domains and official parts."""
        result = hashlib.sha256()
        parts = listing.parts or ("",) * len(listing)
        rows = zip(listing.files, listing.labels.tolist(), listing.domains.tolist(), parts, strict=True)
        for file, label, domain, part in rows:
            names = (file, listing.classes[label], listing.domain_names[domain], part, self.entries[file].digest)
            result.update(json.dumps(names).encode())
        return result.hexdigest()


def store_folder(root: Path) -> Path:
    """Return the folder of the store of the files under a root."""
    key = hashlib.sha256(os.fsencode(f"{root.resolve()}\0{LONGEST_SIDE}\0{_FORMAT}")).hexdigest()[:12]
    name = os.fsdecode(os.fsencode(root.resolve().name)[:_LONGEST_NAME])  # with the key it must be a valid file name
    return store_home() / f"{name or 'root'}-{key}"


def prepare_store(listing: Listing, progress: DataProgress) -> Store:
    """Decode the files of a listing that are not decoded yet or have changed, and return the store."""
    folder = store_folder(listing.root)
    present, unreadable = _stat_all(listing)
    entries = _current(read_journal(folder), present)
    if len(entries) == len(present):
        store = Store(folder, entries, unreadable)
        _renew_index(store, listing)
        return store
    with writing_to(folder):
        known = read_journal(folder)  # another process may have decoded it while this one waited
        entries = _current(known, present)
        missing = [file for file in present if file not in entries]
        new, failures = _add(folder, listing.root, missing, present, known, progress) if missing else ({}, {})
        store = Store(folder, entries | new, unreadable | failures)
        write_bytes(folder / "index.csv", _index(store, listing))
    return store


def _stat_all(listing: Listing) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """Return size and time of every file, and the failures of files that have none, such as broken links."""
    present, failures = {}, {}
    for file in dict.fromkeys(listing.files):
        path = listing.root / file
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            failures[file] = f"The image {path} cannot be read: {reason}. Provide it or remove it from the list."
        else:
            present[file] = (status.st_size, status.st_mtime_ns)
    return present, failures


def _current(known: dict[str, Entry], present: dict[str, tuple[int, int]]) -> dict[str, Entry]:
    return {f: known[f] for f, status in present.items() if f in known and (known[f].size, known[f].time) == status}


@without_warnings()
def _add(
    folder: Path,
    root: Path,
    missing: Sequence[str],
    present: dict[str, tuple[int, int]],
    known: dict[str, Entry],
    progress: DataProgress,
) -> tuple[dict[str, Entry], dict[str, str]]:
    """Decode files and append them; return their entries, and the failures of files that cannot be decoded."""
    size = _estimate(root, missing)
    require_space(folder, size, "Decoding the images", hint="or set MESSI_HOME to a folder on another disk")
    progress.started(f"decoding {len(missing):,} images into {folder} (about {bytes_text(size)})", len(missing))
    entries: dict[str, Entry] = {}
    failures: dict[str, str] = {}
    digests = {file: known[file].digest for file in missing if file in known}
    try:
        with Appender(folder, known) as appender:
            for chunk in decode_all(root, missing, digests):
                failures |= {item.file: item.failure for item in chunk if item.failure}
                entries |= appender.append([item for item in chunk if not item.failure], present)
                progress.advanced(len(chunk))
    finally:
        progress.finished()
    return entries, failures


def _estimate(root: Path, files: Sequence[str]) -> int:
    """Estimate how many bytes the pixels will take, from the sizes of some of the images."""
    sizes = []
    for file in files[:: max(1, len(files) // _SAMPLE)]:
        try:
            height, width = read_size(root / file)
        except Exception:  # noqa: BLE001, S112 (decoding will report what is wrong)
            continue
        sizes.append(height * width * CHANNELS)
    return round(sum(sizes) / len(sizes) * len(files)) if sizes else 0


@contextmanager
def writing_to(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Let one process at a time write to a store; others wait, or get a BusyError."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, folder / "lock", wait=wait):
        yield


def _renew_index(store: Store, listing: Listing) -> None:
    """Rewrite the index of a complete store if it is missing or lists other files, unless the store is read-only."""
    path, index = store.folder / "index.csv", _index(store, listing)
    with suppress(OSError):
        if read_regular(path) == index:
            return
    with suppress(MessiError), writing_to(store.folder, wait=False):
        write_bytes(path, index)


def _index(store: Store, listing: Listing) -> bytes:
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(["domain", "class", "file", "offset", "height", "width"])
    for domain, label, name in zip(listing.domains.tolist(), listing.labels.tolist(), listing.files, strict=True):
        if entry := store.entries.get(name):
            place = (entry.offset, entry.height, entry.width)
            table.writerow([listing.domain_names[domain], listing.classes[label], name, *place])
    return text.getvalue().encode("utf-8", "surrogateescape")
