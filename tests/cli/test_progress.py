"""What is shown while a run goes."""

import pytest

from messi.cli.progress import Bar


@pytest.mark.parametrize("name", ["erm -> {x}", "erm -> cam{0}", "erm -> [/red]", "erm -> [red]"])
def test_a_bar_shows_any_name_as_it_is(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Braces and brackets mean something to rich, and nothing in the name of a domain."""
    monkeypatch.setenv("COLUMNS", "200")
    bar = Bar(name)
    bar.started(0, 2)
    bar.stepped(2)
    bar.finished()
    assert name in capsys.readouterr().out
