"""The command ``messi``: finds the subcommand, and turns errors into one sentence and an exit code."""

import contextlib
import ctypes
import importlib
import io
import os
import sys

from rich.console import Console

from messi.core.errors import MessiError, unknown_name

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
COMMANDS = {
    "demo": "train MESSI and ERM on the embedded data, compare them in a report",
    "train": "train on a folder domain/class/image or on a data set by name",
    "evaluate": "measure a trained model on its target, or on other data",
    "predict": "classify images with a trained model",
    "data": "list, prepare, verify or show data sets",
    "verify": "check that the files of runs and models are undamaged",
    "report": "build one page from finished runs",
    "reproduce": "the tables and figures of the paper, with its numbers beside ours",
    "list": "show the algorithms, data sets, backbones or protocols",
    "info": "show versions and devices, for bug reports",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand and return its exit code: 0, 2 for bad input, 130 when interrupted, 141 when unread."""
    # OpenMP's threads spin while they wait for each other, by default for so long that a second busy process on two
    # cores made training ten times slower. A short spin is as fast alone. It must be said before torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    _keep_freed_memory()
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may be no text
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_help()
        return 0
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        if arguments[0] not in COMMANDS:
            raise unknown_name("command", arguments[0], COMMANDS)
        code: int = importlib.import_module(f"messi.cli.{arguments[0]}").main(arguments[1:])
        sys.stdout.flush()
    except MessiError as error:
        errors.print(f"messi: {error}", style="red", markup=False)
        return 2
    except KeyboardInterrupt as error:
        reason = str(error) or "Interrupted."
        errors.print(f"messi: {reason} Run the same command again to go on.", markup=False)
        return 130
    except BrokenPipeError:
        # The reader, such as head, has enough. What Python still holds back must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _keep_freed_memory() -> None:
    """Tell glibc not to return freed memory to the system at once: every step would fetch it anew, page by page."""
    with contextlib.suppress(OSError, AttributeError):  # other systems have another allocator
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)


def _print_help() -> None:
    console = Console(highlight=False)
    console.print("messi: train on a few domains, work on an unseen one.\n\nusage: messi COMMAND [OPTIONS]\n")
    for name, summary in COMMANDS.items():
        console.print(f"  {name:<10}{summary}", markup=False)
    console.print("\n'messi COMMAND --help' describes a command.")
