"""Verify a data set: compare it with its manifest and its store, and find damaged and duplicate images."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from messi.core.checksum import checksum
from messi.core.errors import MessiError
from messi.core.files import read_regular
from messi.data.image_files import read_digest, read_picture_and_digest, without_warnings
from messi.data.listing import Listing
from messi.data.manifest import Manifest, Version
from messi.data.progress import DataProgress, LogProgress
from messi.data.store import Store, writing_to
from messi.data.store_journal import Entry, read_journal, write_journal
from messi.data.threads import worker_threads

_CHUNK = 256


@dataclass(frozen=True)
class Finding:
    """A problem found in a data set."""

    kind: Literal["missing", "extra", "corrupt", "duplicate", "ignored", "changed", "constant"]
    text: str


def verify(
    listing: Listing, store: Store, manifest: Manifest | None, progress: DataProgress | None = None
) -> tuple[Version | None, list[Finding]]:
    """Return the closest known version of the data, and all differences and problems."""
    findings = [Finding("ignored", f"{file} is not an image file in a class folder") for file in listing.ignored]
    findings += [Finding("corrupt", reason) for reason in store.failures.values()]
    changed, damaged = compare_with_files(store, listing.root, progress or LogProgress())
    findings += [Finding("changed", text) for text in changed]
    findings += [Finding("corrupt", text) for text in damaged]
    findings += _duplicates(listing, store)
    if manifest is None:
        return None, findings
    version, differences = compare(listing, manifest)
    return version, [*findings, *differences]


def compare(listing: Listing, manifest: Manifest) -> tuple[Version, list[Finding]]:
    """Return the closest known version of a data set, and how the listed files differ from it."""
    found = _cells(listing)
    version = min(manifest.versions, key=lambda version: _distance(found, _expected(version, manifest)))
    findings = list(_differences(found, _expected(version, manifest)))
    if version.tree and not findings and _tree(listing) != version.tree:
        findings.append(
            Finding("changed", "all counts are right, but at least one file differs from the published one")
        )
    return version, findings


class _Result(NamedTuple):
    """The result of comparing one image with its checksum and its file."""

    entry: Entry
    """It has a checksum if the pixels are right."""
    changed: str = ""
    damaged: str = ""


@without_warnings()
def compare_with_files(store: Store, root: Path, progress: DataProgress) -> tuple[list[str], list[str]]:
    """Return a message for each file that changed since it was decoded, and for each image with damaged pixels.

    Pixels without a checksum, which messi 0.1 decoded, are compared with a new decoding of the file, and then get one.
    """
    entries = list(store.entries.values())
    if not entries:
        return [], []
    images = store.images([entry.file for entry in entries])

    def compare_one(index: int) -> _Result:
        try:
            return _compare(root / entries[index].file, entries[index], images[index])
        except MessiError as error:
            return _Result(entries[index], damaged=str(error))

    results: list[_Result] = []
    progress.started(f"comparing {len(entries):,} images in {store.folder} with their files", len(entries))
    try:
        with worker_threads(os.cpu_count() or 1) as threads:
            for start in range(0, len(entries), _CHUNK):
                results += threads.map(compare_one, range(start, min(start + _CHUNK, len(entries))))
                progress.advanced(len(results) - start)
    finally:
        progress.finished()
    _add_checksums(store, results)
    return [r.changed for r in results if r.changed], [r.damaged for r in results if r.damaged]


def _compare(path: Path, entry: Entry, stored: Tensor) -> _Result:
    """Compare one image with its file; raise if the pixels are damaged."""
    decoded = None
    try:
        if entry.checksum:
            digest = read_digest(path)
        else:
            decoded, digest = read_picture_and_digest(path)
    except (MessiError, OSError) as error:
        return _Result(entry, changed=f"{path} can no longer be read: {error}")
    if digest != entry.digest:
        return _Result(entry, changed=f"{path} has changed since it was decoded; 'touch' it to have it decoded again")
    if decoded is None:
        return _Result(entry)
    if not torch.equal(decoded, stored):
        raise MessiError(
            f"The decoded pixels of {entry.file} differ from those of the file: damaged, or decoded by another "
            "version of Pillow; delete the folder of the store to have the images decoded again."
        )
    return _Result(entry._replace(checksum=checksum([stored.permute(1, 2, 0).flatten().numpy().data])))


def _add_checksums(store: Store, results: list[_Result]) -> None:
    """Write the new checksums to the journal, unless the store is read-only."""
    added = {r.entry.file: r.entry for r in results if r.entry != store.entries[r.entry.file]}
    if not added:
        return
    with suppress(MessiError), writing_to(store.folder):
        write_journal(store.folder, read_journal(store.folder) | added)


Cells = dict[tuple[str, ...], int]


def _cells(listing: Listing) -> Cells:
    """Return counts by (domain, class), by (domain,) and by (official part,)."""
    counts: Cells = {}
    parts = listing.parts or (None,) * len(listing)
    for domain, label, part in zip(listing.domains.tolist(), listing.labels.tolist(), parts, strict=True):
        name = listing.domain_names[domain]
        for key in ((name, listing.classes[label]), (name,), *(((part,),) if part else ())):
            counts[key] = counts.get(key, 0) + 1
    return counts


def _expected(version: Version, manifest: Manifest) -> Cells:
    if version.counts is None:
        return {(name,): number for name, number in version.totals.items()}
    rows = ((d, zip(manifest.classes, row, strict=True)) for d, row in version.counts.items())
    return {(domain, label): number for domain, row in rows for label, number in row}


def _relevant(found: Cells, expected: Cells) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield every cell with its actual and its expected count, at the level of detail of the manifest."""
    depth = len(next(iter(expected)))
    keys = [key for key in found if len(key) == depth and (depth > 1 or key in expected)]
    for key in dict.fromkeys([*expected, *keys]):
        yield key, found.get(key, 0), expected.get(key, 0)


def _distance(found: Cells, expected: Cells) -> int:
    return sum(abs(actual - wanted) for _, actual, wanted in _relevant(found, expected))


def _differences(found: Cells, expected: Cells) -> Iterator[Finding]:
    for key, actual, wanted in _relevant(found, expected):
        place = "/".join(key)
        if actual < wanted:
            yield Finding("missing", f"{place} has {actual:,} of {wanted:,} images")
        elif actual > wanted:
            yield Finding(
                "extra", f"{place} has {actual:,} images, {actual - wanted:,} more than the expected {wanted:,}"
            )


def _duplicates(listing: Listing, store: Store) -> Iterator[Finding]:
    """Yield files with the same bytes in different domains, or under different classes of one domain."""
    copies: dict[str, list[int]] = {}
    for index, file in enumerate(listing.files):
        if file in store.entries:
            copies.setdefault(store.entries[file].digest, []).append(index)
    for indices in copies.values():
        names = [listing.files[index] for index in indices]
        domains, labels = (set(values[indices].tolist()) for values in (listing.domains, listing.labels))
        if len(domains) > 1:
            yield Finding("duplicate", f"{' = '.join(names)} in {len(domains)} domains")
        elif len(labels) > 1:
            yield Finding("duplicate", f"{' = '.join(names)} under {len(labels)} classes")


def _tree(listing: Listing) -> str:
    digest = hashlib.sha256()
    for file in sorted(listing.files):
        try:
            content = read_regular(listing.root / file)
        except OSError:
            content = b""  # differs from the published file in any case
        digest.update(os.fsencode(file) + b"\0" + hashlib.sha256(content).digest())
    return f"sha256:{digest.hexdigest()}"
