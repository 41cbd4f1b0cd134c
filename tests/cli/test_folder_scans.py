"""Every command lists an image folder once, however many runs it starts."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messi.cli.main import main

QUICK = ["--backbone", "small_cnn", "--no-pretrained", "--augmentation", "none", "--steps", "2", "--device", "cpu"]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each folder is read."""
    counter: Counter[str] = Counter()
    for name in ("scandir", "listdir"):
        real = getattr(os, name)

        def counted(path: Any = ".", real: Callable[[Any], Any] = real) -> Any:
            counter[str(path)] += 1
            return real(path)

        monkeypatch.setattr(os, name, counted)
    return counter


def test_commands_list_a_folder_once(make_folder: Callable[..., Path], scans: Counter[str]) -> None:
    root = make_folder()
    folders = {str(root), *(str(folder) for folder in root.rglob("*") if folder.is_dir())}
    assert len(folders) == 1 + 3 + 6
    for arguments, code in (
        (["data", "prepare", str(root)], 0),
        (["data", "show", str(root)], 0),
        (["data", "verify", str(root)], 0),
        (["train", "--data", str(root), "--recipe", "paper", "--out", "runs", *QUICK], 0),  # three runs
        (["evaluate", "runs/photo", "--device", "cpu"], 0),
        (["evaluate", "runs/photo", "--data", str(root), "--device", "cpu"], 0),
    ):
        scans.clear()
        assert main(arguments) == code, arguments
        assert {folder: scans[folder] for folder in folders} == dict.fromkeys(folders, 1), arguments
