"""``messi report``: one page from finished runs."""

from pathlib import Path

import tyro
from rich.console import Console

from messi.reports.page import write_report


def main(arguments: list[str]) -> int:
    """Parse and write the page."""
    return tyro.cli(report, prog="messi report", args=arguments)


def report(runs: tyro.conf.Positional[tuple[Path, ...]], /, *, out: Path = Path("report.html")) -> int:
    """Build one self-contained page that compares finished runs.

    Args:
        runs: Run folders.
        out: The page to write.

    """
    write_report(runs, out)
    Console(soft_wrap=True, highlight=False).print(f"report  {out}", markup=False)
    return 0
