"""The base classes of all data sets."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from messi.core.config import Config
from messi.core.errors import MessiError
from messi.core.registry import Registry
from messi.core.text import first_few
from messi.data.augment import Augmentation
from messi.data.examples import Examples
from messi.data.listing import Listing
from messi.data.progress import DataProgress, LogProgress
from messi.data.store import Store, prepare_store

DATASETS = Registry("data set", "messi.data.datasets")


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config, ABC):
    """Base of the data sets: a config that can be loaded."""

    registry: ClassVar[Registry | None] = DATASETS
    backbone: ClassVar[str]
    """The default encoder for this data."""
    augmentation: ClassVar[Augmentation]
    """The default augmentation for this data."""
    location_fields: ClassVar[tuple[str, ...]] = ("path", "root", "digits")
    """The fields that locate the data. Data with the same fingerprint is the same data wherever it is stored."""

    @abstractmethod
    def load(self, progress: DataProgress | None = None) -> Examples:
        """Return all examples."""

    def default_targets(self, domains: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the target domains of each run if the user names none: every domain in turn."""
        return [(domain,) for domain in domains]


@dataclass(frozen=True, kw_only=True)
class ImageData(DataConfig):
    """Base of the data sets that consist of image files."""

    backbone: ClassVar[str] = "deit_tiny_patch16_224"
    augmentation: ClassVar[Augmentation] = "domainbed"

    damaged: Literal["refuse", "leave_out"] = "refuse"
    """Refuse data with unreadable images, or leave these images out; either way they are listed."""

    @abstractmethod
    def listing(self, progress: DataProgress) -> Listing:
        """Return the image files."""

    def prepare(self, progress: DataProgress | None = None, *, listing: Listing | None = None) -> tuple[Listing, Store]:
        """List the files, unless ``listing`` is given, and decode new and changed ones; failures are only recorded."""
        progress = progress or LogProgress()
        if listing is None:
            listing = self.listing(progress)
        if listing.ignored:
            ignored = first_few(listing.ignored)
            progress.noted(f"Ignored, because they are not image files in a class folder: {ignored}.")
        return listing, prepare_store(listing, progress)

    def load(self, progress: DataProgress | None = None, *, listing: Listing | None = None) -> Examples:
        """Return all images, decoded once and mapped into memory."""
        progress = progress or LogProgress()
        listing, store = self.prepare(progress, listing=listing)
        if old := store.without_checksum():
            progress.noted(
                f"{len(old):,} images in {store.folder} were decoded by messi 0.1 and have no checksums; "
                "'messi data verify' compares them with their files and adds checksums."
            )
        if store.failures:
            listing = self._without_damaged(listing, store, progress)
        return Examples(
            inputs=store.images(listing.files),
            labels=listing.labels,
            domains=listing.domains,
            classes=listing.classes,
            domain_names=listing.domain_names,
            fingerprint=store.fingerprint(listing),
            parts=listing.parts,
            file_digests=store.digests(listing.files),
        )

    def _without_damaged(self, listing: Listing, store: Store, progress: DataProgress) -> Listing:
        keep = [index for index, file in enumerate(listing.files) if file not in store.failures]
        number = f"{len(store.failures)} of {len(listing):,} images cannot be read"
        reasons = " ".join(list(store.failures.values())[:3])
        if not keep:
            raise MessiError(f"{number}. {reasons}")
        if self.damaged == "refuse":
            if len(store.failures) == 1:
                raise MessiError(f"{reasons} To continue without it, use --damaged leave_out.")
            raise MessiError(f"{number}. {reasons} To continue without them, use --damaged leave_out.")
        progress.noted(f"{number} and are left out: {first_few(list(store.failures), 10)}.")
        return listing.only(keep)
