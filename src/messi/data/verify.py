"""Is the data what it should be? Compared with its manifest and its store, and looked through for damage and copies."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from messi.core.regular import read_regular
from messi.data.listing import Listing
from messi.data.manifest import Manifest, Version
from messi.data.recheck import recheck
from messi.data.store import Store
from messi.data.watcher import LogWatcher, Watcher


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    kind: Literal["missing", "extra", "corrupt", "duplicate", "ignored", "changed"]
    text: str


def verify(
    listing: Listing, store: Store, manifest: Manifest | None, watcher: Watcher | None = None
) -> tuple[Version | None, list[Finding]]:
    """Return the nearest known version of the data and everything that differs from it or is wrong."""
    findings = [Finding("ignored", f"{file} is no image file in a class folder") for file in listing.ignored]
    findings += [Finding("corrupt", reason) for reason in store.failures.values()]
    changed, damaged = recheck(store, listing.root, watcher or LogWatcher())
    findings += [Finding("changed", text) for text in changed]
    findings += [Finding("corrupt", text) for text in damaged]
    findings += _duplicates(listing, store)
    if manifest is None:
        return None, findings
    version, differences = compare(listing, manifest)
    return version, [*findings, *differences]


def compare(listing: Listing, manifest: Manifest) -> tuple[Version, list[Finding]]:
    """Return the nearest known version of a data set, and how the listed files differ from it."""
    found = _cells(listing)
    version = min(manifest.versions, key=lambda version: _distance(found, _expected(version, manifest)))
    findings = list(_differences(found, _expected(version, manifest)))
    if version.tree and not findings and _tree(listing) != version.tree:
        findings.append(Finding("changed", "all counts are right, but some file differs from the published one"))
    return version, findings


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
    """Yield every cell with what is there and what should be, at the level that the manifest knows."""
    depth = len(next(iter(expected)))
    keys = [key for key in found if len(key) == depth and (depth > 1 or key in expected)]
    for key in dict.fromkeys([*expected, *keys]):
        yield key, found.get(key, 0), expected.get(key, 0)


def _distance(found: Cells, expected: Cells) -> int:
    return sum(abs(there - wanted) for _, there, wanted in _relevant(found, expected))


def _differences(found: Cells, expected: Cells) -> Iterator[Finding]:
    for key, there, wanted in _relevant(found, expected):
        place = "/".join(key)
        if there < wanted:
            yield Finding("missing", f"{place} has {there:,} of {wanted:,} images")
        elif there > wanted:
            yield Finding("extra", f"{place} has {there:,} images, {there - wanted:,} more than the {wanted:,} known")


def _duplicates(listing: Listing, store: Store) -> Iterator[Finding]:
    """Yield files of the same bytes in different domains, or under different classes of one domain."""
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
            content = b""  # not what was published either
        digest.update(os.fsencode(file) + b"\0" + hashlib.sha256(content).digest())
    return f"sha256:{digest.hexdigest()}"
