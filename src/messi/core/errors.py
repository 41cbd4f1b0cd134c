"""The one exception meant for users: the command line prints its message and exits with code 2."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class MessiError(Exception):
    """Invalid input; the message names the problem, what is allowed and what to do.

    Advice that names options of one command is stored separately: a command with other options replaces it.
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem} {advice}".rstrip())
        self.problem, self.advice = problem, advice


def unknown_name(kind: str, name: str, known: Iterable[str]) -> MessiError:
    """Describe a name that does not exist, and suggest the closest existing one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return MessiError(f"There is no {kind} named '{name}'; available: {', '.join(names)}.{hint}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating-system error, such as a full disk, into a MessiError that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise MessiError(
            f"Could not write {path}: {reason}. Everything saved before is intact; "
            "free some space or choose another folder, then repeat the command."
        ) from error
