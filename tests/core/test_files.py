"""Atomic writes: by several processes, after a kill, and next to links that others have created."""

import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from messi.core import files
from messi.core.errors import MessiError
from messi.core.files import leftovers, replace_atomically, write_text
from messi.core.lock import locked
from messi.core.run_documents import RunDescription
from messi.core.rundir import RunDir

KILLED = """
import os, signal, sys
from pathlib import Path
from messi.core.files import replace_atomically

def write(temporary):
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

replace_atomically(Path(sys.argv[1]), write)
"""


def killed_while_writing(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the names of temporary files known in advance, as to an attacker who guesses them."""
    monkeypatch.setattr("secrets.token_hex", lambda _bytes: "0" * 8)


@pytest.mark.parametrize("name", ["page.html.tmp", "page.html.new", "page.html.12345678.tmp"])
def test_a_link_in_the_way_is_never_written_through(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / name).symlink_to(tmp_path / "mine")
    write_text(tmp_path / "page.html", "page")
    assert (tmp_path / "mine").read_text() == "precious"
    assert (tmp_path / "page.html").read_text() == "page"
    assert not (tmp_path / "page.html").is_symlink()


@pytest.mark.usefixtures("names")
def test_a_link_with_the_guessed_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / f"page.html.{'0' * 8}.tmp").symlink_to(tmp_path / "mine")
    write_text(tmp_path / "page.html", "page")
    assert list((tmp_path / "mine").iterdir()) == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine", "page.html"]


def test_a_file_that_is_a_link_is_replaced_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "page.html").symlink_to(tmp_path / "mine")
    write_text(tmp_path / "page.html", "page")
    assert ((tmp_path / "mine").read_text(), (tmp_path / "page.html").read_text()) == ("precious", "page")


def test_the_next_write_of_a_file_deletes_its_leftovers_and_no_others(tmp_path: Path) -> None:
    for name in ("a", "a", "b"):
        killed_while_writing(tmp_path / name)
    assert (len(leftovers(tmp_path / "a")), len(leftovers(tmp_path / "b"))) == (1, 1)
    others = leftovers(tmp_path / "b")
    write_text(tmp_path / "a", "whole")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a", *others])


def test_a_run_folder_whose_first_write_was_killed_is_still_a_run(tmp_path: Path) -> None:
    folder = RunDir(tmp_path / "run")
    config = {"data": {"name": "d"}, "algorithm": {"name": "a"}, "training": {"steps": 1}, "target": [], "seed": 0}
    about = RunDescription(config=config, version="1", data="d", classes=(), sources=(), target=(), environment={})
    folder.path.mkdir()
    killed_while_writing(folder.description)
    with folder.locked():
        folder.begin(about)
    assert sorted(file.name for file in folder.path.iterdir()) == ["lock", "run.json"]


def test_concurrent_writes_of_one_file_do_not_interfere(tmp_path: Path) -> None:
    path, begun, ended = tmp_path / "page.html", threading.Event(), threading.Event()

    def slow(temporary: Path) -> None:
        temporary.write_text("slow")
        begun.set()
        assert ended.wait(60)

    thread = threading.Thread(target=replace_atomically, args=(path, slow))
    thread.start()
    assert begun.wait(60)
    write_text(path, "quick")
    assert path.read_text() == "quick"
    ended.set()
    thread.join()
    assert path.read_text() == "slow"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_the_umask_decides_who_may_read_a_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "page.html", "page")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o666 & ~mask


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    write_text(tmp_path / "page.html", "old")
    with pytest.raises(MessiError, match=r"Could not write .*page.html: No space left on device"):
        replace_atomically(tmp_path / "page.html", fail)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_a_folder_that_is_taken_for_a_leftover_before_it_is_locked_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may delete the new folder at that moment; the one that the lock then creates is not private."""
    taken: list[Path] = []

    def removed_first(work: Path, lock: Path, **options: Any) -> AbstractContextManager[None]:
        if not taken:
            taken.append(work)
            work.rmdir()
        return locked(work, lock, **options)

    monkeypatch.setattr(files, "locked", removed_first)

    def write(temporary: Path) -> None:
        assert temporary.parent != taken[0]
        assert stat.S_IMODE(temporary.parent.stat().st_mode) == 0o700
        temporary.write_text("page")

    replace_atomically(tmp_path / "page.html", write)
    assert (tmp_path / "page.html").read_text() == "page"
