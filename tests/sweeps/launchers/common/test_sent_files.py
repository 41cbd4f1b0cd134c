"""Copies of run folders must be states from which a run can resume, at whatever moment they are made."""

import threading
import time
from pathlib import Path

import pytest

from messi.core.files import write_bytes
from messi.sweeps.launchers.common import sent_files
from messi.sweeps.launchers.common.sent_files import (
    changed_files,
    data_digest,
    keep_data,
    read_data,
    stamps,
    write_files,
)


def test_a_copy_of_a_folder_that_is_being_written_holds_files_that_belong_together(tmp_path: Path) -> None:
    """A run writes records, then the model, then the checkpoint: a copy never has the checkpoint without the others."""
    names = ("records.jsonl", "model.safetensors", "last.safetensors")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with (tmp_path / names[0]).open("a") as records:
                records.write("x")
            for name in names[1:]:
                write_bytes(tmp_path / name, b"%d" % number)
                time.sleep(0.002)
            time.sleep(0.02)

    copy, known, seen = dict[str, bytes](), dict[str, tuple[int, int, int]](), set[int]()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            copy |= changed_files(tmp_path, known)
            if len(copy) == 3:
                last, model = int(copy[names[2]]), int(copy[names[1]])
                assert model in (last, last + 1)
                assert len(copy[names[0]]) >= model
                seen.add(last)
    finally:
        stop.set()
        writer.join()
    assert len(seen) > 3
    copy |= changed_files(tmp_path, known)
    assert copy == {name: (tmp_path / name).read_bytes() for name in names}
    assert changed_files(tmp_path, known) == {}


def test_only_changed_files_of_the_run_are_returned(tmp_path: Path) -> None:
    (tmp_path / "run.json.0a1b2c3d.tmp").mkdir()
    for name in ("lock", "run.json", "examples/1.png", "run.json.0a1b2c3d.tmp/run.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    known = stamps(tmp_path)
    assert sorted(known) == ["examples/1.png", "run.json"]
    write_bytes(tmp_path / "run.json", b"run.json")  # the same content, but written again
    assert changed_files(tmp_path, known) == {"run.json": b"run.json"}


def test_a_kill_while_files_are_written_leaves_a_run_that_can_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["result.json", "last.safetensors", "records.jsonl", "model.safetensors", "run.json", "examples/1.png"]
    written: list[str] = []
    monkeypatch.setattr(sent_files, "write_bytes", lambda path, _content: written.append(path.name))
    write_files(tmp_path, dict.fromkeys(names, b""))
    assert written[-3:] == ["records.jsonl", "last.safetensors", "result.json"]
    assert sorted(written[:3]) == ["1.png", "model.safetensors", "run.json"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_data_is_received_once_per_machine(kind: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    if kind == "file":
        data.write_bytes(b"1")
    else:
        for name in ("a/x.png", "b/y.png"):
            (data / name).parent.mkdir(parents=True)
            (data / name).write_bytes(name.encode())
    received: list[str] = []

    def receive() -> dict[str, bytes]:
        received.append(threading.current_thread().name)
        time.sleep(0.1)
        return read_data(data)

    digest, home = data_digest(read_data(data)), tmp_path / "home"
    threads = [threading.Thread(target=keep_data, args=(home, digest, receive)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(received) == 1
    assert data_digest(read_data(home / digest / "data")) == digest


def test_the_digest_of_data_changes_with_names_and_contents() -> None:
    different = [
        {},
        {"a": b""},
        {"b": b""},
        {"a": b"1"},
        {"a": b"", "b": b""},
        {"a": b"1", "b": b""},
        {"a": b"", "b": b"1"},
    ]
    assert len({data_digest(files) for files in different}) == len(different)
