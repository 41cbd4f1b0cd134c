"""Names of files, classes and domains come from anywhere; here they become text that commands nobody's terminal."""

import re

_COMMANDS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, with which escape sequences begin, and those that end a line or turn the direction of text."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001 (the wide forms count as well)


def printable(text: str) -> str:
    r"""Make every control character visible, such as ``\x1b``."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def spreadsheet_cell(value: object) -> object:
    """Return a value for a CSV file; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
