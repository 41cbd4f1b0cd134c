"""SWAD's choice of segments against the queues of the original code, and on curves with an obvious answer."""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messi.engine.averaging.valley import LEARNED, SWADConfig, Valley, find_valley


def valley_of(
    losses: Sequence[float],
    *,
    optimum: int = 3,
    overfit: int = 6,
    tolerance: float = 0.3,
    chance: float = math.inf,
) -> Valley | None:
    config = SWADConfig(swad_optimum_patience=optimum, swad_overfit_patience=overfit, swad_tolerance=tolerance)
    return find_valley(losses, config, chance=chance)


class Queues:
    """The original algorithm: segments pass through two queues, one at every evaluation."""

    def __init__(self, converge: int, tolerance: int, ratio: float) -> None:
        self.recent: deque[tuple[int, float]] = deque(maxlen=converge)
        self.smooth: deque[tuple[int, float]] = deque(maxlen=tolerance)
        self.converge, self.tolerance, self.ratio = converge, tolerance, ratio
        self.threshold: float | None = None
        self.dead = False
        self.added: list[int] = []
        """The segments in the order in which the original averages them, some more than once."""
        self.start = -1

    def end_of_segment(self, number: int, loss: float) -> None:
        self.recent.append((number, loss))
        self.smooth.append((number, loss))
        if self.threshold is None:
            self.look_for_the_start()
        elif self.smooth[0][0] < self.bottom:
            return
        elif min(loss for _, loss in self.smooth) > self.threshold:
            self.dead = True
        else:
            self.added.append(self.smooth[0][0])

    def look_for_the_start(self) -> None:
        losses = [loss for _, loss in self.recent]
        if len(losses) < self.converge or losses.index(min(losses)) != 0:
            return
        self.bottom = self.recent[0][0]
        self.threshold = (1 + self.ratio) * fmean(losses)
        older = list(self.smooth)[: self.tolerance - self.converge + 1]
        begin = 0
        for place in reversed(range(len(older))):
            if older[place][1] > self.threshold:
                begin = place + 1
                break
        self.added += [number for number, _ in older[begin + 1 :]]
        self.start = min([self.bottom, *self.added])

    def end(self) -> list[int]:
        """Return the segments that the original averages, but each once and none before the start.

        It takes the bottom twice, and where training ends soon after that, also segments before the start.
        """
        added = list(self.added)
        if self.threshold is not None and not self.dead:
            rest = list(self.smooth)[1:]
            while rest and min(loss for _, loss in rest) <= self.threshold:
                added.append(rest.pop(0)[0])
        return sorted({number for number in (self.bottom, *added) if number >= self.start})


curves = st.lists(st.sampled_from([0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0]), min_size=1, max_size=25)


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(losses=curves, converge=st.integers(1, 4), more=st.integers(0, 4), ratio=st.sampled_from([0.0, 0.1, 0.3]))
def test_after_every_segment_the_valley_is_that_of_the_queues(
    losses: Sequence[float], converge: int, more: int, ratio: float
) -> None:
    queues = Queues(converge, converge + more, ratio)
    for number, loss in enumerate(losses):
        queues.end_of_segment(number, loss)
        valley = valley_of(losses[: number + 1], optimum=converge, overfit=converge + more, tolerance=ratio)
        if valley is None:
            assert queues.threshold is None
            continue
        assert (valley.threshold, valley.ended) == (queues.threshold, queues.dead)
        assert list(range(valley.first, valley.last + 1)) == queues.end()
        if valley.ended:
            return


@settings(max_examples=300, deadline=None, derandomize=True)
@given(losses=curves, optimum=st.integers(1, 5), overfit=st.integers(1, 8))
def test_a_detected_valley_keeps_its_start_and_only_grows(losses: list[float], optimum: int, overfit: int) -> None:
    found = [valley_of(losses[:number], optimum=optimum, overfit=overfit) for number in range(1, len(losses) + 1)]
    for before, after in pairwise(valley for valley in found if valley is not None):
        assert (before.first, before.threshold) == (after.first, after.threshold)
        assert before.first <= before.last <= after.last


def test_a_loss_that_only_falls_has_no_valley() -> None:
    assert valley_of([1.0 - 0.05 * number for number in range(12)]) is None


def test_a_valley_may_be_detected_only_at_the_last_evaluation() -> None:
    curve = [2.0, 1.6, 1.2, 0.8, 0.5, 0.6, 0.55]
    assert valley_of(curve[:-1]) is None
    valley = valley_of(curve)
    assert valley is not None
    assert valley.threshold == pytest.approx(1.3 * 0.55)
    assert (valley.first, valley.last, valley.ended) == (4, 6, False)


def test_a_v_is_averaged_around_its_bottom() -> None:
    """The bottom is segment 5, detected at 7 with the threshold 1.3 (5 + 6 + 7) / 3 = 7.8 hundredths.

    Looking back, segment 3 is at 7 hundredths and segment 2, at 8, is the first above the threshold: the valley begins
    at 3, and 4 is the first averaged segment. On the other side, 7 is the last segment below the threshold.
    """
    curve = [0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.06, 0.07, 0.08, 0.09, 0.10, 0.11, 0.12, 0.13]
    alive, dead = valley_of(curve[:-1]), valley_of(curve)
    assert alive is not None and dead is not None  # noqa: PT018
    assert (alive.first, alive.last, alive.ended) == (4, 7, False)
    assert (dead.first, dead.last, dead.ended) == (4, 7, True)


def test_a_flat_floor_is_averaged_up_to_its_end() -> None:
    curve = [2.0, 1.6, 1.2, 0.8] + [0.5] * 8 + [3.0] * 6
    valley = valley_of(curve)
    assert valley is not None
    assert valley.threshold == pytest.approx(0.65)
    assert (valley.first, valley.last, valley.ended) == (4, 11, True)


def test_a_bump_shorter_than_the_patience_is_averaged_as_well() -> None:
    curve = [1.0, 0.5, 0.5, 0.5, 3.0, 3.0, 3.0, 3.0, 3.0, 0.6]
    before, after = valley_of(curve[:-1]), valley_of(curve)
    assert before is not None and after is not None  # noqa: PT018
    assert (before.last, before.ended) == (3, False)
    assert (after.last, after.ended) == (9, False)
    over = valley_of([*curve[:-1], 3.0])
    assert over is not None
    assert (over.last, over.ended) == (3, True)


@given(
    losses=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=12),
    optimum=st.integers(1, 5),
    overfit=st.integers(1, 5),
)
def test_without_more_patience_after_the_bottom_than_at_it_the_valley_begins_there(
    losses: list[float], optimum: int, overfit: int
) -> None:
    overfit = min(overfit, optimum)
    valley = valley_of(losses, optimum=optimum, overfit=overfit)
    bottoms = [n for n in range(len(losses) - optimum + 1) if losses[n] == min(losses[n : n + optimum])]
    assert (valley.first if valley else None) == (bottoms[0] if bottoms else None)


def test_a_valley_may_have_ended_when_it_is_detected() -> None:
    valley = valley_of([1.0, 9.0, 9.0], optimum=3, overfit=2)
    assert valley is not None
    assert (valley.first, valley.last, valley.ended) == (0, 0, True)


def test_a_flat_beginning_at_the_loss_of_a_guess_is_not_a_valley() -> None:
    """Of two classes, with 25 % wrong labels: the loss falls from 0.69 to 0.60 only, within the tolerance of 0.3."""
    curve = [0.684, 0.688, 0.690, 0.687, 0.688, 0.67, 0.64, 0.61, 0.60, 0.61, 0.60, 0.61, 0.62]
    anywhere, learned = valley_of(curve), valley_of(curve, chance=math.log(2))
    assert anywhere is not None
    assert learned is not None
    assert (anywhere.first, anywhere.last) == (0, 12)
    assert (learned.first, learned.last) == (6, 12)
    assert valley_of(curve[:8], chance=math.log(2)) is None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(losses=curves, optimum=st.integers(1, 4), overfit=st.integers(1, 8))
def test_the_loss_of_a_guess_changes_nothing_once_the_model_has_learned(
    losses: list[float], optimum: int, overfit: int
) -> None:
    """Early losses above the limit of the valley are outside it anyway, as in the published settings."""
    early = [3.0] * overfit
    plain = valley_of([*early, *losses], optimum=optimum, overfit=overfit)
    if plain is not None and plain.first >= len(early):
        assert valley_of([*early, *losses], optimum=optimum, overfit=overfit, chance=2.5 / LEARNED) == plain


@given(losses=curves, chance=st.sampled_from([0.6, 1.0, 1.5]))
def test_no_valley_begins_before_the_loss_is_below_that_of_a_guess(losses: list[float], chance: float) -> None:
    valley = valley_of(losses, chance=chance)
    if valley is not None:
        assert any(loss < LEARNED * chance for loss in losses[: valley.first + 1])
