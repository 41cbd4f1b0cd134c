"""Check that text files have no trailing whitespace and end with exactly one newline."""

import sys
from pathlib import Path

bad = [
    path
    for path in sys.argv[1:]
    if (text := Path(path).read_text(encoding="utf-8"))
    and (any(line != line.rstrip(" \t") for line in text.split("\n")) or text != text.rstrip("\n") + "\n")
]
sys.exit(f"Trailing whitespace, or not exactly one newline at the end: {', '.join(bad)}" if bad else 0)
