"""``messi report`` on folders, some of which are not finished runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from messi.cli.main import main
from tests.command import messi
from tests.reports.helpers import Sample


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two finished runs, an interrupted one, a page, and a folder without runs."""
    for place, name in enumerate(("a", "b", "stopped")):
        Sample(seed=place, images=False).write(tmp_path / "runs" / name)
    (tmp_path / "runs" / "stopped" / "result.json").unlink()
    (tmp_path / "runs" / "page.html").write_text("a page")
    (tmp_path / "pictures").mkdir()
    return tmp_path / "runs"


def test_unfinished_runs_are_left_out_and_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *(f"runs/{place.name}" for place in sorted(runs.iterdir()))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "left out  runs/page.html, runs/stopped: not finished runs; repeat the command that started a run to resume it",
        "report  report.html",
    ]
    page = Path("report.html").read_bytes()
    assert main(["report", "runs/a", "runs/b"]) == 0
    assert "left out" not in capsys.readouterr().out
    assert Path("report.html").read_bytes() == page


@pytest.mark.parametrize(
    ("folders", "sentence"),
    [
        (("runs/stopped",), "runs/stopped is not a finished run: result.json is missing. "),
        (("runs/stopped", "pictures"), "runs/stopped is not a finished run: result.json is missing."),
        (("pictures",), "pictures is not a run folder: run.json is missing."),
        (("runs/page.html",), "There is no folder runs/page.html; name the folder of a run"),
        (("runs/a", "runs/c"), "There is no folder runs/c; name the folder of a run"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_the_error_for_a_folder_without_a_finished_run_states_what_it_is(
    folders: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *folders]) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert len(printed.splitlines()) == 1
    assert not Path("report.html").exists()


def test_a_folder_of_runs_means_all_runs_in_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For example the folder that ``messi train`` creates for several targets."""
    assert main(["report", "runs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "left out  runs/stopped: not finished runs; repeat the command that started a run to resume it",
        "report  report.html",
    ]
    page = Path("report.html").read_bytes()
    assert main(["report", "runs/a", "runs/b"]) == 0
    assert Path("report.html").read_bytes() == page


@pytest.mark.parametrize("command", [("predict", "runs", "x.png"), ("evaluate", "runs")])
@pytest.mark.usefixtures("runs")
def test_other_commands_name_the_runs_in_a_folder(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command]) == 2
    sentence = "runs is not a run folder: run.json is missing. It contains 3 runs: a, b, stopped; name one of them."
    assert capsys.readouterr().err == f"messi: {sentence}\n"


@pytest.mark.usefixtures("runs")
def test_an_error_names_the_first_runs_of_a_large_folder(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        Sample(images=False).write(Path("many") / f"run{number:02}")
    assert main(["evaluate", "many"]) == 2
    assert "It contains 12 runs: run00, " in (printed := capsys.readouterr().err)
    assert "run09 and 2 more; name one of them." in printed


WITHOUT_TORCH = """
import sys

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "timm", "torchvision", "triton"):
            raise ImportError(f"{name} is imported")

sys.meta_path.insert(0, Absent())
from messi.cli.main import main
sys.exit(main(["report", "runs"]))
"""


def test_the_page_of_runs_needs_no_torch(runs: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], cwd=runs.parent, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (runs.parent / "report.html").exists()


def test_report_compares_runs_on_one_page(trained: Path, tmp_path: Path) -> None:
    done = messi("report", trained / "run", "--out", tmp_path / "page.html")
    assert done.returncode == 0
    assert "dark room" in (tmp_path / "page.html").read_text()
    done = messi("report", tmp_path, "--out", tmp_path / "other.html")
    assert done.returncode == 2
    assert not (tmp_path / "other.html").exists()
