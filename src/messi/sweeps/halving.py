"""Successive halving: how far to train each draw of a search, by source validation alone.

All draws are trained for a few steps, the best third continues for three times as many, and so on. The runs are those
of a full search, paused at an evaluation, so a draw that continues ends with the same bits as without halving.
"""

import math
from collections.abc import Callable, Sequence

FACTOR = 3
"""One in this many draws continues, for this many times as many steps."""
FAILED = -math.inf
"""The score of a draw that cannot continue."""


def pauses(steps: int, evaluate_every: int, draws: int) -> list[int]:
    """Return the steps at which draws are compared: fractions of all steps, rounded up to an evaluation."""
    rounds = int(math.log(draws, FACTOR) + 1e-9) if draws else 0
    exact = (steps / FACTOR**number for number in range(rounds, 0, -1))
    rounded = (math.ceil(step / evaluate_every) * evaluate_every for step in exact)
    return [step for step in dict.fromkeys(rounded) if step < steps]


def train_until(
    draws: Sequence[int], at: Sequence[int], score: Callable[[int, int], float | None]
) -> dict[int, int | None]:
    """Return the step until which each draw is to be trained now; None: to the end.

    Args:
        draws: all draws.
        at: the steps at which draws are compared.
        score: the score of a draw at one of these steps; None if it has not reached the step, ``FAILED`` if it cannot.

    """
    until: dict[int, int | None] = {}
    alive = list(draws)
    for step in at:
        until |= dict.fromkeys(alive, step)
        scores = {draw: score(draw, step) for draw in alive}
        known = {draw: found for draw, found in scores.items() if found is not None}
        if len(known) < len(alive):  # wait for the others
            return until
        best = sorted(alive, key=lambda draw: (-known[draw], draw))[: math.ceil(len(alive) / FACTOR)]
        alive = [draw for draw in best if known[draw] != FAILED]
    return until | dict.fromkeys(alive, None)
