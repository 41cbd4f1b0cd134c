import pytest

from messi.core.text import printable, spreadsheet_cell


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\nb\tc\rd\x7f", r"a\nb\tc\rd\x7f"),
        ("\x9b2J", r"\x9b2J"),
        ("gnp.\u202eexe\u2066", r"gnp.\u202eexe\u2066"),
        ("a\u2028b", r"a\u2028b"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


@pytest.mark.parametrize("text", ["", "dark room", "Straße", "犬", r"back\slash", "🐕", "\xa0", "a\u200db"])
def test_names_in_any_language_are_unchanged(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-", "＝1"])  # noqa: RUF001
def test_a_formula_becomes_text(cell: str) -> None:
    assert spreadsheet_cell(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["-0.5", "+1e-3", "-inf", "cat", "", "'=1", "a=b", -0.5, -3, None, True])
def test_numbers_and_other_texts_are_unchanged(cell: object) -> None:
    assert spreadsheet_cell(cell) == cell
