"""What ``import messi`` offers, as the README uses it."""

from pathlib import Path

import messi
from messi.engine.config import RunConfig


def test_a_run_from_python_leaves_the_folder_that_the_command_leaves(tmp_path: Path, quick_config: RunConfig) -> None:
    result = messi.run(quick_config, out=tmp_path / "run", device="cpu")
    report = result.path / "report.html"
    assert "b2" in report.read_text()
    report.unlink()
    again = messi.run(quick_config, out=tmp_path / "run", device="cpu")
    assert (again.fresh, report.exists()) == (False, True)
    before = report.stat().st_mtime_ns
    messi.run(quick_config, out=tmp_path / "run", device="cpu")
    assert report.stat().st_mtime_ns == before
