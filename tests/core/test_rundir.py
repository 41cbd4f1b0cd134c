"""A run folder and its files: records, tensors, and which process may use them."""

import dataclasses
import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from messi.core.errors import MessiError
from messi.core.files import replace_atomically, write_text
from messi.core.records import (
    ClassScores,
    EvaluationRecord,
    Record,
    RecordWriter,
    RoleRecord,
    TrainRecord,
    read_records,
)
from messi.core.run_documents import RunDescription
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors

CONFIG = {
    "data": {"name": "folder"},
    "target": ["t"],
    "algorithm": {"name": "erm", "weight": 1},
    "training": {"steps": 3},
    "seed": 0,
}
SCORES = ClassScores(balanced_accuracy=1 / 3, macro_f1=0.3, majority_share=0.8)
DESCRIPTION = RunDescription(
    config=CONFIG, version="1", data="d", classes=("a", "b"), sources=("s",), target=("t",), environment={}
)


def test_records_are_read_as_written(tmp_path: Path) -> None:
    records: list[Record] = [
        TrainRecord(step=1, terms={"cls": 0.1 + 0.2}),
        EvaluationRecord(step=1, role="source_val", domain="ü<b>", count=3, accuracy=1 / 3, loss=1e-30),
        RoleRecord(step=1, role="unseen_val", count=3, accuracy=1 / 3, macro_f1=1 / 7),
        RoleRecord(step=2, role="target", count=3, accuracy=1 / 3, macro_f1=1 / 7, class_scores=SCORES),
    ]
    writer = RecordWriter(tmp_path / "r", size=0)
    for record in records:
        writer.write(record)
    writer.close()
    assert read_records(tmp_path / "r") == records
    assert (tmp_path / "r").read_bytes().splitlines()[1] == (
        b'{"kind": "evaluation", "step": 1, "role": "source_val", "domain": "\\u00fc<b>", "count": 3, '
        b'"accuracy": 0.3333333333333333, "loss": 1e-30, "averaged": false}'
    ), "a record of balanced classes is the same as in earlier versions"


def test_a_share_above_1_is_refused(tmp_path: Path) -> None:
    record = RoleRecord(step=2, role="target", count=3, accuracy=1 / 3, macro_f1=1 / 7, class_scores=SCORES)
    line = json.dumps({"kind": "role", **asdict(record)})
    (tmp_path / "r").write_text(line.replace('"majority_share": 0.8', '"majority_share": 1.8') + "\n")
    with pytest.raises(MessiError, match="majority_share must be at least 0 and at most 1, but is 1"):
        read_records(tmp_path / "r")


def test_a_line_that_a_killed_process_left_unfinished_is_not_read_and_is_cut_off(tmp_path: Path) -> None:
    path, record = tmp_path / "r", TrainRecord(step=1, terms={"cls": 1.0})
    writer = RecordWriter(path, size=0)
    writer.write(record)
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"kind": "tra')
    assert read_records(path) == [record]
    again = RecordWriter(path, size=writer.size)
    again.write(record)
    again.close()
    assert read_records(path) == [record, record]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    (tmp_path / "r").write_text('{"kind": "train", "step": 1, "terms": {}}\n{"kind": "unheard of"}\n')
    with pytest.raises(MessiError, match="line 2"):
        read_records(tmp_path / "r")


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise InterruptedError

    with pytest.raises(MessiError, match="Could not write"):
        replace_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_is_not_utf8_can_be_written_to_a_text_file(tmp_path: Path) -> None:
    """Python reads the bytes of a file name that are not UTF-8 as lone surrogates."""
    write_text(tmp_path / "page", b"caf\xe9 \xc3\xa9".decode("utf-8", "surrogateescape"))
    assert (tmp_path / "page").read_text(encoding="utf-8") == "caf? é"


def test_tensors_and_description_are_restored_bit_for_bit(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4).T, "b": torch.tensor(3), "c": torch.randn(2).bfloat16()}
    write_tensors(tmp_path / "t", tensors, {"step": 7, "names": ["x"]})
    read, description = read_tensors(tmp_path / "t")
    assert description == {"step": 7, "names": ["x"]}
    assert all(torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in tensors.items())


def test_a_tensor_file_has_the_permissions_of_other_files(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "")
    write_tensors(tmp_path / "t", {"a": torch.randn(30)}, {})
    assert (tmp_path / "t").stat().st_mode == (tmp_path / "text").stat().st_mode


def test_the_next_write_deletes_the_leftovers_of_a_killed_one(tmp_path: Path) -> None:
    """safetensors first writes to a neighbouring file with a random name."""
    code = """
import os, signal, sys, torch
from pathlib import Path
from messi.core import tensorfile

def save(tensors, path, metadata):
    Path(path).with_name(f".tmp{os.getpid()}").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

tensorfile.save_file = save
tensorfile.write_tensors(Path(sys.argv[1]), {"a": torch.zeros(3)}, {})
"""
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], check=False)
        assert killed.returncode == -signal.SIGKILL
    write_tensors(tmp_path / "t", {"a": torch.randn(30)}, {})
    assert [file.name for file in tmp_path.rglob("*")] == ["t"]


@pytest.mark.parametrize("length", [0, 5, 40, -1])
def test_a_tensor_file_that_is_cut_short_is_named(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t"
    write_tensors(path, {"a": torch.randn(30)}, {})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(MessiError, match="damaged, truncated or not a file of messi"):
        read_tensors(path)


def test_a_folder_of_another_config_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    folder.begin(DESCRIPTION)
    folder.begin(DESCRIPTION)
    other = dataclasses.replace(DESCRIPTION, config=CONFIG | {"algorithm": {"name": "erm", "weight": 2}})
    with pytest.raises(MessiError, match=r"another config: algorithm.weight was 1 and is now 2"):
        folder.begin(other)
    with pytest.raises(MessiError, match=r"data has changed since the run"):
        folder.begin(dataclasses.replace(DESCRIPTION, data="e"))
    assert folder.read_description() == DESCRIPTION


def test_a_folder_with_other_files_is_not_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(MessiError, match="is not a run folder"), RunDir(tmp_path).locked():
        RunDir(tmp_path).begin(DESCRIPTION)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_two_processes_cannot_use_one_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from messi.core.rundir import RunDir\n"
        f"with RunDir(Path({str(tmp_path)!r})).locked(): pass"
    )
    with RunDir(tmp_path).locked():
        inside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    after = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Another process is working on" in inside.stderr
    assert after.returncode == 0


def test_a_failure_before_the_run_begins_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RunDir(tmp_path / "new").locked():
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
