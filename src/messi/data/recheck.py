"""Comparing all of a store with its checksums, and with the files that it was decoded from."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from messi.core.checksum import checksum
from messi.core.errors import MessiError
from messi.data.image_files import read_digest, read_picture_and_digest, without_warnings
from messi.data.journal import Entry, read_journal, write_journal
from messi.data.store import Store, locked
from messi.data.threads import single_threads
from messi.data.watcher import Watcher

_CHUNK = 256


class _Result(NamedTuple):
    """What came of comparing one image."""

    entry: Entry
    """With a checksum, if its pixels are right."""
    changed: str = ""
    damaged: str = ""


@without_warnings()
def recheck(store: Store, root: Path, watcher: Watcher) -> tuple[list[str], list[str]]:
    """Return which files are not those that were decoded, and which decoded pixels are damaged, a text for each.

    Pixels without a checksum, which messi 0.1 left, are compared with their file decoded again, and then get one.
    """
    entries = list(store.entries.values())
    if not entries:
        return [], []
    images = store.images([entry.file for entry in entries])

    def compare(index: int) -> _Result:
        try:
            return _compare(root / entries[index].file, entries[index], images[index])
        except MessiError as error:
            return _Result(entries[index], damaged=str(error))

    results: list[_Result] = []
    watcher.started(f"comparing {len(entries):,} images in {store.folder} with their files", len(entries))
    try:
        with single_threads(os.cpu_count() or 1) as threads:
            for start in range(0, len(entries), _CHUNK):
                results += threads.map(compare, range(start, min(start + _CHUNK, len(entries))))
                watcher.advanced(len(results) - start)
    finally:
        watcher.finished()
    _add_checksums(store, results)
    return [r.changed for r in results if r.changed], [r.damaged for r in results if r.damaged]


def _compare(path: Path, entry: Entry, stored: Tensor) -> _Result:
    """Compare one image, whose pixels have their checksum, with its file; raise if they are damaged."""
    decoded = None
    try:
        if entry.checksum:
            digest = read_digest(path)
        else:
            decoded, digest = read_picture_and_digest(path)
    except (MessiError, OSError) as error:
        return _Result(entry, changed=f"{path} cannot be read any more: {error}")
    if digest != entry.digest:
        return _Result(
            entry, changed=f"{path} has other bytes than when it was decoded; 'touch' it, and it is decoded again"
        )
    if decoded is None:
        return _Result(entry)
    if not torch.equal(decoded, stored):
        raise MessiError(
            f"The decoded pixels of {entry.file} are not those that the file has now: damaged, or decoded by another "
            "version of Pillow; delete the folder of the store, and the images are decoded again."
        )
    return _Result(entry._replace(checksum=checksum([stored.permute(1, 2, 0).flatten().numpy().data])))


def _add_checksums(store: Store, results: list[_Result]) -> None:
    """Write the new checksums into the journal, unless the store may only be read."""
    added = {r.entry.file: r.entry for r in results if r.entry != store.entries[r.entry.file]}
    if not added:
        return
    with suppress(MessiError), locked(store.folder):
        write_journal(store.folder, read_journal(store.folder) | added)
