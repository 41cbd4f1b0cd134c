"""The command ``messi``: finds the subcommand, and turns errors into one sentence and an exit code."""

import contextlib
import ctypes
import importlib
import logging
import os
import sys
from collections.abc import Iterator

from messi.cli.common.output import (
    NoteHandler,
    discard_unwritten,
    escaped_errors,
    is_output_error,
    note,
    prepare_output,
    say,
)
from messi.core.errors import MessiError, unknown_name
from messi.core.info import version

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_CLOSED_PIPE = 141
"""128 plus the number of SIGPIPE, as a shell reports it."""
COMMANDS = {
    "demo": "compare MESSI and ERM on the embedded data, with a report",
    "train": "train on a folder domain/class/image or on a data set by name",
    "compare": "compare methods on your domains, recommend one and train it on all of them",
    "tune": "search the hyper-parameters of methods, with domains held out in turn",
    "average": "average the weights of several runs into one model",
    "evaluate": "measure a trained model on its target domains or on other data",
    "export": "write a model as one file for ONNX Runtime or torch, with a model card",
    "predict": "classify images or features with a trained model",
    "serve": "answer requests over HTTP with a trained model, with a page",
    "data": "list, prepare, verify or show data sets",
    "verify": "check that the files of runs, plans and models are undamaged",
    "status": "show how far a plan is, what failed and the time left",
    "report": "build one page from finished runs",
    "reproduce": "run the experiments of the paper and print its numbers next to ours",
    "list": "list recipes, algorithms, data sets, backbones or protocols",
    "info": "show versions and devices, for bug reports",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand and return its exit code: 0, 2 for bad input, 130 when interrupted, 141 for a closed pipe."""
    # OpenMP threads spin while they wait for each other, by default for so long that a second busy process on two
    # cores made training ten times slower. A short spin is as fast without one. Torch reads this when it is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    keep_freed_memory()
    prepare_output()
    logging.getLogger("messi").handlers = [NoteHandler()]
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with escaped_errors(arguments):
            code = _run(arguments)
        sys.stdout.flush()
    except OSError as error:
        if not is_output_error(error):
            raise
        code = _CLOSED_PIPE if isinstance(error, BrokenPipeError) else 2
        if code != _CLOSED_PIPE:  # a reader that has enough, such as head, is not an error
            _complain(
                f"The output could not be written: {error.strerror}. Send it to a file on a disk with free space."
            )
    discard_unwritten()
    return code


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_help()
        return 0
    if arguments == ["--version"]:
        say(f"messi {version()}")
        return 0
    try:
        if arguments[0] not in COMMANDS:
            raise unknown_name("command", arguments[0], COMMANDS)
        with _memory_errors():
            code: int = importlib.import_module(f"messi.cli.{arguments[0]}").main(arguments[1:])
    except SystemExit as end:  # the option parser printed help or an error
        code = int(end.code or 0)
    except MessiError as error:
        _complain(str(error))
        code = 2
    except KeyboardInterrupt as error:
        note(f"messi: {str(error) or 'Interrupted.'} Repeat the command to resume.")
        code = 130
    return code


@contextlib.contextmanager
def _memory_errors() -> Iterator[None]:
    """Turn a failed allocation into a MessiError; torch has a class of its own for GPUs and none for the CPU."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        failed = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if not failed and "DefaultCPUAllocator" not in str(error):
            raise
        raise MessiError(
            "The memory of this machine or its GPU does not suffice. Repeat the command with less to compute at once, "
            "such as a smaller --batch-per-domain, --image-size or --backbone, where the command has these options."
        ) from error


def _complain(sentence: str) -> None:
    note(f"messi: {sentence}", style="red")


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory: returned memory would be fetched again, page by page, in every step."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # other systems have another allocator
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        libc.mallopt(_M_MMAP_MAX, 0)  # a threshold cannot exceed 32 MiB, which feature maps do


def _print_help() -> None:
    commands = (f"  {name:<10}{summary}" for name, summary in COMMANDS.items())
    about = ("messi: train on a few domains, work on an unseen one.", "", "usage: messi COMMAND [OPTIONS]", "")
    say(*about, *commands, "", "'messi COMMAND --help' describes a command, 'messi --version' prints the version.")
