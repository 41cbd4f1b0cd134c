"""The progress of a run."""

import pytest

from messi.cli.common.progress import Bar, PlainLines
from messi.core.text import pace


@pytest.mark.parametrize("name", ["erm -> {x}", "erm -> cam{0}", "erm -> [/red]", "erm -> [red]"])
def test_a_bar_shows_any_name_unchanged(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Braces and brackets are markup to rich, but not in the name of a domain."""
    monkeypatch.setenv("COLUMNS", "200")
    bar = Bar(name)
    bar.started(0, 2)
    bar.stepped(2)
    bar.finished()
    assert name in capsys.readouterr().out


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as a list with one number that a test can set."""
    now = [100.0]
    monkeypatch.setattr("messi.cli.common.progress.time.monotonic", lambda: now[0])
    return now


def test_plain_lines_begin_with_a_description_of_the_run(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = PlainLines("erm", lambda: "data pets, target sketch, device cpu")
    lines.started(0, 300)
    assert capsys.readouterr().out == "erm: 300 steps, data pets, target sketch, device cpu\n"
    lines.started(20, 300)
    assert "resuming after step 20 of 300, data pets" in capsys.readouterr().out


def test_plain_lines_show_the_loss_after_ten_quiet_seconds(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = PlainLines("erm")
    lines.started(0, 300)
    for step, seconds, accuracy in ((10, 4, None), (20, 10, None), (30, 14, 0.5), (40, 20, None), (41, 25, None)):
        clock[0] = 100.0 + seconds
        if step % 10 == 0:
            lines.logged(step, {"cls": 1 / step})
        if accuracy:
            lines.evaluated(step, accuracy)
        lines.stepped(step)
    assert capsys.readouterr().out.splitlines() == [
        "erm: 300 steps",
        "erm: step 20/300  2.0 steps/s  cls 0.05",
        "erm: step 30/300  val 50.0%  2.1 steps/s  cls 0.0333",
    ]


def test_a_step_is_printed_once_however_long_ago_the_last_line_was(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = PlainLines("erm")
    lines.started(0, 300)
    clock[0] = 150
    lines.logged(300, {"cls": 0.02})
    lines.evaluated(300, 0.5)
    lines.stepped(300)
    assert capsys.readouterr().out.splitlines()[1:] == ["erm: step 300/300  val 50.0%  6.0 steps/s  cls 0.02"]


@pytest.mark.parametrize(
    ("speed", "text"),
    [
        (0.0, "- steps/s"),
        (1 / 4.2, "4.2 s/step"),
        (0.004, "250.0 s/step"),
        (1.0, "1.0 steps/s"),
        (95.23, "95.2 steps/s"),
    ],
)
def test_slow_steps_are_given_in_seconds(speed: float, text: str) -> None:
    assert pace(speed) == text
