"""Published data sets: a local folder first, then the usual download, else one message that says what to put where."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from messi.core.errors import MessiError
from messi.data.archive import unpack
from messi.data.datasets.common.base import ImageData
from messi.data.disk import BusyError
from messi.data.download import download
from messi.data.home import data_home
from messi.data.listing import Listing, list_folder
from messi.data.manifest import Download, Manifest, read_manifest
from messi.data.verify import compare
from messi.data.watcher import Watcher

_DEPTH = 5


@dataclass(frozen=True, kw_only=True)
class Benchmark(ImageData):
    """Base of the published data sets of images; each is described by the manifest of its name."""

    path: str | None = None
    """The folder with the data; by default it is looked for in $MESSI_HOME/data, and then downloaded."""

    @property
    def manifest(self) -> Manifest:
        """What is known of the data set."""
        return read_manifest(self.name)

    def listing(self, watcher: Watcher) -> Listing:
        """Return the image files."""
        return self.list_files(self.root(watcher))

    def list_files(self, root: Path) -> Listing:
        """Return the image files under the folder that holds the domains."""
        return list_folder(root, domains=self.manifest.domains)

    def local_root(self) -> Path | None:
        """Return the folder that holds the data, if it is on this machine."""
        place = Path(self.path) if self.path else data_home() / self.manifest.folder
        found = self._find(place)
        if self.path and not found:
            raise MessiError(
                f"The folder {place} does not hold {self.manifest.title}: {self.layout()}.",
                "Name its folder with --path.",
            )
        return found

    def root(self, watcher: Watcher) -> Path:
        """Return the folder that holds the data, which is downloaded if need be."""
        return self.local_root() or self._obtain(watcher)

    def is_root(self, folder: Path) -> bool:
        """Tell whether a folder is the one that holds the domains."""
        return all((folder / domain).is_dir() for domain in self.manifest.domains)

    def layout(self) -> str:
        """Say what :meth:`is_root` looks for."""
        return f"it must have the folders {', '.join(self.manifest.domains)}, with class folders in them"

    def _find(self, place: Path) -> Path | None:
        """Return the root at or some levels below a place; archives have folders of their own around it."""
        level = [place] if place.is_dir() else []
        for _ in range(_DEPTH):
            if roots := [folder for folder in level if self.is_root(folder)]:
                return roots[0]
            level = [child for folder in level for child in sorted(folder.iterdir()) if child.is_dir()][:1000]
        return None

    def _obtain(self, watcher: Watcher) -> Path:
        """Download and unpack every part, then put the whole in place in one step."""
        manifest, home = self.manifest, data_home() / self.manifest.folder
        work = home.with_name(f"{home.name}.download")
        if home.is_file() or (home.is_dir() and any(home.iterdir())):
            raise MessiError(
                f"The folder {home} does not hold {manifest.title}: {self.layout()}. Complete or remove it."
            )
        try:
            for part in dict.fromkeys(item.part for item in manifest.downloads):
                place = work / "parts" / part
                if not place.exists():
                    _fetch([item for item in manifest.downloads if item.part == part], place, watcher)
        except (MessiError, OSError) as error:
            raise MessiError(
                f"{manifest.title} is not in {home} and could not be downloaded: {error} "
                f"Put it there ({self.layout()}); it comes from {manifest.homepage}.",
                "Or name its folder with --path.",
            ) from error
        self.assemble(work)
        found = self._find(work)
        if not found:
            raise MessiError(
                f"What was downloaded into {work} is not {manifest.title}: {self.layout()}. Delete it and try again."
            )
        self._check(found, watcher)
        found.replace(home)
        shutil.rmtree(work, ignore_errors=True)
        return home

    def assemble(self, work: Path) -> None:
        """Bring unpacked parts, each in a folder under work/parts, into the layout that :meth:`is_root` looks for."""

    def _check(self, root: Path, watcher: Watcher) -> None:
        """Compare what was downloaded with the manifest; archives that are made on demand have no checksum."""
        version, findings = compare(self.list_files(root), self.manifest)
        if version.tree and findings:
            raise MessiError(
                f"What was downloaded into {root} is not {self.manifest.title} as published: {findings[0].text}. "
                "Delete it and try again."
            )
        if findings:
            watcher.noted(f"This is no known version of {self.manifest.title}: {findings[0].text}.")


def _fetch(copies: list[Download], place: Path, watcher: Watcher) -> None:
    """Download and unpack one part from the first of its copies that can be had."""
    for number, item in enumerate(copies, start=1):
        file = place.with_name(f"{place.name}-{number}.{item.kind}")
        try:
            _download(item, file, watcher)
        except MessiError as error:
            if number == len(copies) or isinstance(error, BusyError):
                raise
            watcher.noted(f"{error} Trying the next copy.")
            continue
        if item.kind == "file":
            file.replace(place)
        else:
            unpack(file, place)
            file.unlink()
        return


def _download(item: Download, file: Path, watcher: Watcher) -> None:
    done = 0

    def progress(received: int, _total: int | None) -> None:
        nonlocal done
        watcher.advanced(max(0, received - done))  # a server may start anew
        done = received

    watcher.started(f"downloading {item.url}", item.size)
    try:
        download(item.url, file, size=item.size, checksum=item.checksum, progress=progress)
    finally:
        watcher.finished()
