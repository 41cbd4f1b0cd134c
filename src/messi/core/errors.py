"""The one exception that is meant for users: the command line prints it as one sentence and exits with 2."""

import difflib
from collections.abc import Iterable


class MessiError(Exception):
    """Something the user gave cannot be used; the message names it, what is allowed and what to do.

    Advice that names options of one command is given apart: a command with other options gives its own.
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem} {advice}".rstrip())
        self.problem, self.advice = problem, advice


def unknown_name(kind: str, name: str, known: Iterable[str]) -> MessiError:
    """Describe a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return MessiError(f"There is no {kind} named '{name}'; there are: {', '.join(names)}.{hint}")
