"""Text for people: names that cannot control a terminal, spreadsheet cells, short lists, amounts."""

import re
import unicodedata
from collections.abc import Sequence

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, which start escape sequences, and characters that end a line or reverse the text direction."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001 (spreadsheets accept the wide forms)


def printable(text: str) -> str:
    r"""Make control characters visible, such as ``\x1b``: names of files, classes and domains may contain them."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def plain_name(text: str) -> str:
    """Return a name in the one spelling of equal names: no blanks around it, composed characters.

    An "é" may also be stored as an "e" and an accent, which looks the same; file systems and spreadsheets differ in it.
    """
    return unicodedata.normalize("NFC", text.strip())


def as_spelled(name: str, known: Sequence[str]) -> str:
    """Return a known name as it is spelled there; another name as it is."""
    return name if name in known else next((one for one in known if plain_name(one) == plain_name(name)), name)


def spreadsheet_cell(value: object) -> object:
    """Return a value for a CSV file; an apostrophe precedes text that a spreadsheet would treat as a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def first_few(names: Sequence[str], number: int = 3) -> str:
    """Return the first few names and how many more there are."""
    more = f" and {len(names) - number:,} more" if len(names) > number else ""
    return ", ".join(names[:number]) + more


def counted(number: int, noun: str) -> str:
    """Return a number of things: "1 method", "2 methods"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def last_line(reason: str) -> str:
    """Return the error itself, without the traceback before it."""
    return (reason.strip().splitlines() or ["unknown"])[-1]


def bytes_text(number: float) -> str:
    """Return a number of bytes with its unit, such as ``74.8 MB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def duration(seconds: float) -> str:
    """Return a time with its unit, such as ``3.5 min``."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def pace(speed: float) -> str:
    """Return steps per second, or seconds per step if they are more than one."""
    if not speed:
        return "- steps/s"
    return f"{speed:.1f} steps/s" if speed >= 1 else f"{1 / speed:.1f} s/step"
