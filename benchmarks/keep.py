"""Results that are kept: a dated page under ``benchmarks/results`` with the command that made it."""

import argparse
import datetime
import sys
from pathlib import Path


def parse(description: str) -> argparse.Namespace:
    """Read the one option that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--save", action="store_true", help="keep the table under benchmarks/results")
    return parser.parse_args()


def show(result: str, *, name: str, title: str, save: bool) -> None:
    """Print a table, and keep it if asked to."""
    print(result)
    if save:
        today = datetime.datetime.now(datetime.UTC).date()
        path = Path(__file__).parent / "results" / f"{name}_{today}.md"
        command = f"python benchmarks/{Path(sys.argv[0]).name} --save"
        path.write_text(f"# {title}, {today}\n\n    {command}\n\n{result}")
