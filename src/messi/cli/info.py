"""``messi info``: versions and devices, for bug reports."""

import tyro

from messi.cli.output import Format, print_rows
from messi.core.info import environment


def main(arguments: list[str]) -> int:
    """Parse and print."""
    return tyro.cli(info, prog="messi info", args=arguments)


def info(*, format: Format = "table") -> int:  # noqa: A002 (the option's name)
    """Print versions and devices.

    Args:
        format: Table, CSV or JSON.

    """
    print_rows([{"what": name, "value": value} for name, value in environment().items()], format)
    return 0
