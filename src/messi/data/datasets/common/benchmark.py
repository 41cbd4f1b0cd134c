"""Published data sets: used from a local folder, or downloaded, or else an error states which files to put where."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from messi.core.errors import MessiError
from messi.core.lock import BusyError
from messi.data.archive import unpack
from messi.data.datasets.common.base import ImageData
from messi.data.disk import data_home
from messi.data.download import download
from messi.data.listing import Listing, list_folder
from messi.data.manifest import Download, Manifest, read_manifest
from messi.data.progress import DataProgress
from messi.data.verify import compare

_DEPTH = 5


@dataclass(frozen=True, kw_only=True)
class Benchmark(ImageData):
    """Base of the published data sets of images; ``data/manifests/NAME.json`` describes each."""

    path: str | None = None
    """The folder with the data; by default in $MESSI_HOME/data, where it is downloaded if it is missing."""

    @property
    def manifest(self) -> Manifest:
        """The domains, classes, versions and sources of the data set."""
        return read_manifest(self.name)

    def listing(self, progress: DataProgress) -> Listing:
        """Return the image files; download them if they are missing."""
        root = self.local_root()
        return self.list_files(root) if root else self._obtain(progress)

    def list_files(self, root: Path) -> Listing:
        """Return the image files under the folder that contains the domains."""
        return list_folder(root, domains=self.manifest.domains)

    def local_root(self) -> Path | None:
        """Return the folder that contains the data, if it is on this machine."""
        place = Path(self.path) if self.path else data_home() / self.manifest.folder
        found = self._find(place)
        if self.path and not found:
            raise MessiError(
                f"The folder {place} does not contain {self.manifest.title}: {self.layout()}.",
                "Name its folder with --path.",
            )
        return found

    def is_root(self, folder: Path) -> bool:
        """Return whether a folder is the one that contains the domains."""
        return all((folder / domain).is_dir() for domain in self.manifest.domains)

    def layout(self) -> str:
        """Describe what :meth:`is_root` looks for."""
        return f"it must contain the folders {', '.join(self.manifest.domains)}, with class folders in them"

    def _find(self, place: Path) -> Path | None:
        """Return the root at or a few levels below a folder; archives add folders around it."""
        level = [place] if place.is_dir() else []
        for _ in range(_DEPTH):
            if roots := [folder for folder in level if self.is_root(folder)]:
                return roots[0]
            level = [child for folder in level for child in sorted(folder.iterdir()) if child.is_dir()][:1000]
        return None

    def _obtain(self, progress: DataProgress) -> Listing:
        """Download and unpack every part, move the whole into place in one step, and list it."""
        manifest, home = self.manifest, data_home() / self.manifest.folder
        work = home.with_name(f"{home.name}.download")
        if home.is_file() or (home.is_dir() and any(home.iterdir())):
            raise MessiError(
                f"The folder {home} does not contain {manifest.title}: {self.layout()}. Complete or remove it."
            )
        try:
            for part in dict.fromkeys(item.part for item in manifest.downloads):
                place = work / "parts" / part
                if not place.exists():
                    _fetch([item for item in manifest.downloads if item.part == part], place, progress)
        except (MessiError, OSError) as error:
            raise MessiError(
                f"{manifest.title} is not in {home} and could not be downloaded: {error} "
                f"Put it there ({self.layout()}); it is available from {manifest.homepage}.",
                "Or name its folder with --path.",
            ) from error
        self.assemble(work)
        found = self._find(work)
        if not found:
            raise MessiError(
                f"The download in {work} is not {manifest.title}: {self.layout()}. Delete it and try again."
            )
        listing = self.list_files(found)
        self._check(listing, progress)
        found.replace(home)
        shutil.rmtree(work, ignore_errors=True)
        return replace(listing, root=home)

    def assemble(self, work: Path) -> None:
        """Move unpacked parts, each in a folder under work/parts, into the layout that :meth:`is_root` looks for."""

    def _check(self, listing: Listing, progress: DataProgress) -> None:
        """Compare the download with the manifest; archives that a server builds on demand have no checksum."""
        version, findings = compare(listing, self.manifest)
        if version.tree and findings:
            raise MessiError(
                f"The download in {listing.root} is not {self.manifest.title} as published: {findings[0].text}. "
                "Delete it and try again."
            )
        if findings:
            progress.noted(f"This is not a known version of {self.manifest.title}: {findings[0].text}.")


def _fetch(copies: list[Download], place: Path, progress: DataProgress) -> None:
    """Download and unpack one part from the first of its copies that can be downloaded."""
    for number, item in enumerate(copies, start=1):
        file = place.with_name(f"{place.name}-{number}.{item.kind}")
        try:
            _download(item, file, progress)
        except MessiError as error:
            if number == len(copies) or isinstance(error, BusyError):
                raise
            progress.noted(f"{error} Trying the next copy.")
            continue
        if item.kind == "file":
            file.replace(place)
        else:
            unpack(file, place)
            file.unlink()
        return


def _download(item: Download, file: Path, progress: DataProgress) -> None:
    done = 0

    def received(number: int, _total: int | None) -> None:
        nonlocal done
        progress.advanced(max(0, number - done))  # a server may start over
        done = number

    progress.started(f"downloading {item.url}", item.size)
    try:
        download(item.url, file, size=item.size, checksum=item.checksum, received=received)
    finally:
        progress.finished()
