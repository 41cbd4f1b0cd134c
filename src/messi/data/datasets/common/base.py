"""What every data set offers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from messi.core.config import Config
from messi.core.errors import MessiError
from messi.core.registry import Registry
from messi.data.augment import Augmentation
from messi.data.examples import Examples
from messi.data.listing import Listing
from messi.data.store import Store, prepare_store
from messi.data.watcher import LogWatcher, Watcher, some

DATASETS = Registry("data set", "messi.data.datasets")


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config, ABC):
    """Base of the data sets: a config that can be loaded."""

    registry: ClassVar[Registry | None] = DATASETS
    backbone: ClassVar[str]
    """The encoder that suits the data when the user names none."""
    augmentation: ClassVar[Augmentation]
    """The augmentation that suits it."""
    places: ClassVar[tuple[str, ...]] = ("path", "root", "digits")
    """The fields that say where data lies. Data with the same fingerprint is the same data wherever it lies."""

    @abstractmethod
    def load(self, watcher: Watcher | None = None) -> Examples:
        """Return all examples."""

    def default_targets(self, domains: Sequence[str]) -> list[tuple[str, ...]]:
        """Return what to hold out, run by run, when the user does not say: every domain in turn."""
        return [(domain,) for domain in domains]


@dataclass(frozen=True, kw_only=True)
class ImageData(DataConfig):
    """Base of the data sets that are image files."""

    backbone: ClassVar[str] = "deit_tiny_patch16_224"
    augmentation: ClassVar[Augmentation] = "domainbed"

    damaged: Literal["refuse", "leave_out"] = "refuse"
    """What to do when there are images that cannot be read; either way they are named."""

    @abstractmethod
    def listing(self, watcher: Watcher) -> Listing:
        """Return the image files."""

    def prepare(self, watcher: Watcher | None = None) -> tuple[Listing, Store]:
        """List the files and decode those that are not decoded yet; files that cannot be are only noted."""
        watcher = watcher or LogWatcher()
        listing = self.listing(watcher)
        if listing.ignored:
            watcher.noted(f"Not used, because they are no image files in a class folder: {some(listing.ignored)}.")
        return listing, prepare_store(listing, watcher)

    def load(self, watcher: Watcher | None = None) -> Examples:
        """Return all images, decoded once and mapped into memory."""
        watcher = watcher or LogWatcher()
        listing, store = self.prepare(watcher)
        if old := store.unsealed():
            watcher.noted(
                f"{len(old):,} images in {store.folder} were decoded by messi 0.1 and have no checksums; "
                "'messi data verify' compares them with their files and adds checksums."
            )
        if store.failures:
            listing = self._without_damaged(listing, store, watcher)
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

    def _without_damaged(self, listing: Listing, store: Store, watcher: Watcher) -> Listing:
        keep = [index for index, file in enumerate(listing.files) if file not in store.failures]
        number = f"{len(store.failures)} of {len(listing):,} images cannot be read"
        reasons = " ".join(list(store.failures.values())[:3])
        if not keep:
            raise MessiError(f"{number}. {reasons}")
        if self.damaged == "refuse":
            if len(store.failures) == 1:
                raise MessiError(f"{reasons} To go on without it, use --damaged leave_out.")
            raise MessiError(f"{number}. {reasons} To go on without them, use --damaged leave_out.")
        watcher.noted(f"{number} and are left out: {some(list(store.failures), 10)}.")
        return listing.only(keep)
