"""What commands write: to a terminal that obeys escape sequences, to a spreadsheet, and to a full disk."""

import ast
import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from PIL import Image

import messi.cli.info
from messi.cli.common.output import note, print_rows, say
from messi.cli.main import main

ESCAPE = "\x1b]0;owned\x07"
SHOWN = r"\x1b]0;owned\x07"


SEVERAL = """
import json, sys
from messi.cli.main import main
for command in json.load(sys.stdin):
    main(command)
    print("NEXT COMMAND", flush=True)
"""


def in_a_terminal(commands: Sequence[Sequence[str | Path]]) -> list[str]:
    """Return what each command writes if standard output and standard error are a terminal."""
    ours, theirs = pty.openpty()
    terminal = {**os.environ, "TERM": "xterm", "COLUMNS": "250"}
    process = [sys.executable, "-c", SEVERAL]
    with subprocess.Popen(process, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=terminal) as child:
        os.close(theirs)
        assert child.stdin is not None
        child.stdin.write(json.dumps([[str(word) for word in command] for command in commands]).encode())
        child.stdin.close()
        written = b""
        try:
            while part := os.read(ours, 1 << 16):
                written += part
        except OSError:  # Linux reports this way that the other end is closed
            pass
        os.close(ours)
    text = written.decode()
    assert "Traceback" not in text
    return text.split("NEXT COMMAND")[:-1]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of images whose domain, class and file names hold escape sequences."""
    for domain in ("a", f"b{ESCAPE}"):
        for label in ("=c", f"d{ESCAPE}"):
            folder = tmp_path / "data" / domain / label
            folder.mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}{ESCAPE}.png")
    return tmp_path / "data"


QUICK = ("--algorithm", "erm", "--backbone", "tiny_cnn", "--steps", "2", "--evaluate-every", "1", "--device", "cpu")


def test_names_cannot_control_the_terminal(hostile: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    commands = (
        ("data", "show", hostile, "--out", tmp_path / "sheet.png"),
        ("data", "verify", hostile),
        ("train", "--data", hostile, *QUICK, "--out", out),
        ("predict", out / "a", hostile, "--format", "csv"),
        ("evaluate", out / "a"),
        ("report", out, "--out", tmp_path / f"page{ESCAPE}.html"),
        ("train", "--data", hostile, f"--nothing{ESCAPE}"),
        (f"{ESCAPE}",),
    )
    written = in_a_terminal(commands)
    assert len(written) == len(commands)
    assert [text for text in written if "\x1b]" in text or "\x07" in text] == []
    assert [number for number, text in enumerate(written) if SHOWN not in text.replace("\r\n", "")] == []


def test_only_one_module_writes() -> None:
    """This ensures that all text is escaped for the terminal."""
    found = []
    for file in Path(messi.cli.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if file.name != "output.py" and name in ("print", "Console", "stderr", "__stdout__", "__stderr__"):
                found.append(f"{file.name}: {name}")
            if file.name not in ("output.py", "main.py") and name == "stdout":
                found.append(f"{file.name}: {name}")
    assert found == []


def test_a_spreadsheet_gets_no_formula_from_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"image": "=cmd()", "class": "-1+1", "n": -3, "loss": -0.5, "note": "-0.5"}], "csv")
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row == {"image": "'=cmd()", "class": "'-1+1", "n": "-3", "loss": "-0.5", "note": "-0.5"}


def test_json_has_exact_names_and_is_valid_for_all_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{ESCAPE}\x7f\x9b\u202e\n=犬"
    print_rows([{"image": name, "probability": float("nan"), "loss": float("inf"), "n": 1}], "json")
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    expected = [{"image": name, "probability": None, "loss": None, "n": 1}]
    assert json.loads(text, parse_constant=refuse) == expected


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_an_empty_table_is_not_an_error(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], form)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


def test_a_line_break_in_a_name_does_not_start_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    say("model  a\nreport  evil")
    note("messi: a\nmessi: b")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("model  a\\nreport  evil\n", "messi: a\\nmessi: b\n")


COMMANDS = [("--help",), ("info",), ("info", "--format", "csv"), ("list", "backbones"), ("train", "--help")]
FULL = "messi: The output could not be written: No space left on device. Send it to a file on a disk with free space.\n"


def written_to(output: str, errors: str, *arguments: str) -> int:
    """Return the exit code of a command, called in this process, whose outputs are files."""
    with Path(output).open("w") as out, Path(errors).open("w") as err, redirect_stdout(out), redirect_stderr(err):
        return main(list(arguments))


def process_writing_to(output: str, errors: str, *arguments: str) -> int:
    """Return the exit code of a process whose outputs are files; Python flushes them once more when it exits."""
    with Path(output).open("w") as out, Path(errors).open("w") as err:
        return subprocess.run([sys.executable, *arguments], stdout=out, stderr=err, check=False).returncode


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_full_output_gets_one_sentence(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert written_to("/dev/full", str(tmp_path / "errors"), *arguments) == 2
    assert (tmp_path / "errors").read_text() == FULL


@pytest.mark.parametrize("arguments", [("-m", "messi", "info"), ("-u", "-m", "messi", "--help")], ids=" ".join)
def test_a_process_with_a_full_output_prints_one_sentence(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert process_writing_to("/dev/full", str(tmp_path / "errors"), *arguments) == 2
    assert (tmp_path / "errors").read_text() == FULL


def test_a_full_output_is_noticed_if_standard_error_is_full_too() -> None:
    assert process_writing_to("/dev/full", "/dev/full", "-m", "messi", "--help") == 2


@pytest.mark.parametrize(("arguments", "code"), [(("info",), 0), (("trian",), 2), (("train", "--nothing"), 2)])
def test_full_errors_change_no_exit_code(arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    assert written_to(str(tmp_path / "out"), "/dev/full", *arguments) == code


@pytest.mark.parametrize(("arguments", "code"), [("--help", 0), ("trian", 2)])
def test_closed_outputs_are_not_an_error(arguments: str, code: int) -> None:
    command = f"{sys.executable} -m messi {arguments} >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == code


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_that_stops_early_is_not_an_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert written_to(f"/dev/fd/{writer}", str(tmp_path / "errors"), *arguments) == 141
    os.close(writer)
    assert (tmp_path / "errors").read_text() == ""


def test_an_error_that_is_unrelated_to_the_output_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_arguments: list[str]) -> int:
        raise FileNotFoundError(2, "No such file or directory", "x")

    monkeypatch.setattr("messi.cli.info.main", fail)
    with pytest.raises(FileNotFoundError):
        main(["info"])
