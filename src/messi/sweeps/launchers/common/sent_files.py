"""Files and folders that are sent to another machine: what has changed in a run folder, and data of limited size."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from messi.core.errors import MessiError, writing
from messi.core.files import write_bytes
from messi.core.lock import locked
from messi.core.text import bytes_text

Files = dict[str, bytes]
"""Contents by relative path."""
Stamps = dict[str, tuple[int, int, int]]
"""Inode, time and size by relative path: together they change with every write."""

MODEL_FILES = ("run.json", "records.jsonl", "model.safetensors", "result.json")
"""What a run that starts from another run, or an average of runs, reads of them."""
_WRITTEN_LATE = ("records.jsonl", "last.safetensors", "result.json")
"""In the order in which a run writes them, after all others."""
_MOST_DATA = 2 * 10**9
"""Larger data should be copied to every node, not sent through the memory of the driver."""
_TRIES = 20


def run_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Return the files of a run, without its lock and without files that are being written."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        parts = path.relative_to(folder).parts
        if path.is_file() and parts != ("lock",) and not any(part.endswith(".tmp") for part in parts):
            yield "/".join(parts), path


def changed_files(folder: Path, known: Stamps) -> Files:
    """Return the files of a run that have changed since ``known``, which is updated.

    The run may be writing. The files belong together all the same: nothing was replaced while they were read, and the
    records, which only grow, were read last. If the run writes all the time, nothing is returned.
    """
    for _ in range(_TRIES):
        try:
            before = stamps(folder)
            changed = [name for name in before if known.get(name) != before[name]]
            files = {name: (folder / name).read_bytes() for name in sorted(changed, key="records.jsonl".__eq__)}
            if _without_records(stamps(folder)) == _without_records(before):
                known.update(before)
                return files
        except FileNotFoundError:
            pass
        time.sleep(0.1)
    return {}


def write_files(folder: Path, files: Files) -> None:
    """Write files in the order in which a run writes them, so that a kill in between leaves a run that can resume."""
    for name in sorted(files, key=lambda name: _WRITTEN_LATE.index(name) if name in _WRITTEN_LATE else -1):
        with writing(folder / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / name, files[name])


def read_data(path: Path) -> Files:
    """Return a file, or all files of a folder, by path relative to its parent; refuse more than a few gigabytes."""
    places = [path] if path.is_file() else sorted(place for place in path.rglob("*") if place.is_file())
    size = sum(place.stat().st_size for place in places)
    if size > _MOST_DATA:
        raise MessiError(
            f"{path} is not on every node of the cluster, and its {bytes_text(size)} are too large to send (at most "
            f"{bytes_text(_MOST_DATA)}); copy it to the same path on every node."
        )
    return {place.relative_to(path.parent).as_posix(): place.read_bytes() for place in places}


def data_digest(files: Files) -> str:
    """Return hex digits that identify names and contents."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:24]


def keep_data(home: Path, digest: str, receive: Callable[[], Files]) -> Path:
    """Return the folder with data of this digest; it is received only if no process of this machine has it already."""
    place = home / digest
    if not place.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with locked(place, home / f"{digest}.lock", wait=True):
            if not place.is_dir():
                temporary = home / f"{digest}.tmp"
                shutil.rmtree(temporary, ignore_errors=True)
                for name, content in receive().items():
                    with writing(temporary / name):
                        (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                        (temporary / name).write_bytes(content)
                temporary.replace(place)
    return place


def stamps(folder: Path) -> Stamps:
    """Return the stamps of the files of a run."""
    status = {name: path.stat() for name, path in run_files(folder)}
    return {name: (one.st_ino, one.st_mtime_ns, one.st_size) for name, one in status.items()}


def _without_records(stamps: Stamps) -> Stamps:
    return {name: stamp for name, stamp in stamps.items() if name != "records.jsonl"}
