"""DomainNet."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from messi.core.errors import MessiError
from messi.data.datasets.common.benchmark import Benchmark
from messi.data.listing import Listing

_DUPLICATES = ("domain_net_duplicates.txt", "parts/duplicates")


@dataclass(frozen=True, kw_only=True)
class DomainNet(Benchmark):
    """DomainNet: 345 kinds of objects in six styles, with or without the 9,431 files that DomainBed deletes."""

    duplicates: Literal["drop", "keep"] = "drop"
    """Drop the files in domain_net_duplicates.txt, as DomainBed does, or keep all."""

    def assemble(self, work: Path) -> None:
        """Move the six domains, each from its own archive, into one folder."""
        for domain in self.manifest.domains:
            unpacked = work / "parts" / domain / domain
            if unpacked.is_dir():
                unpacked.rename(work / domain)

    def list_files(self, root: Path) -> Listing:
        """Return the image files."""
        listing = super().list_files(root)
        listing = replace(listing, ignored=tuple(file for file in listing.ignored if file not in _DUPLICATES))
        if self.duplicates == "keep":
            return listing
        dropped = self._dropped(root, listing)
        return listing.only([index for index, file in enumerate(listing.files) if file not in dropped])

    def _dropped(self, root: Path, listing: Listing) -> set[str]:
        """Return the files to drop; none if they were deleted from the folder before."""
        if len(listing) == self.manifest.versions[1].images:
            return set()
        for name in _DUPLICATES:
            place = root / name
            if place.is_file():
                return {line.strip() for line in place.read_text(encoding="utf-8").splitlines()}
        raise MessiError(
            f"{root} has {len(listing):,} images, so it still contains the duplicates; put DomainBed's "
            f"{_DUPLICATES[0]} there, or use --duplicates keep."
        )
