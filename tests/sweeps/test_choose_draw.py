"""DomainBed's three rules, recomputed in numpy from random records, and how far halving trains each draw."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from messi.core.records import EvaluationRecord, Record, Role
from messi.sweeps.choose_draw import RULES, DrawnRun, DrawRule, best_draw, drawn_run, mean_scores, over_targets
from messi.sweeps.halving import FAILED, pauses, train_until

DOMAINS, DRAWS, SEEDS, STEPS = "abcd", 7, 2, (10, 20, 30)


def held_out_sets() -> list[tuple[int, ...]]:
    return [places for size in (1, 2) for places in itertools.combinations(range(len(DOMAINS)), size)]


def records_of(validation: np.ndarray, target: np.ndarray, held_out: Sequence[int], chosen: int) -> list[Record]:
    """Return the records of a run, from arrays [steps, domains] and [2, domains]: the parts of the target."""
    rest = [place for place in range(len(DOMAINS)) if place not in held_out]
    measured: list[tuple[Role, int, int, float]] = [
        ("source_val", step, place, validation[number, place]) for number, step in enumerate(STEPS) for place in rest
    ]
    measured += [("target", STEPS[chosen], place, target[0, place]) for place in held_out]
    measured += [("target_val", STEPS[chosen], place, target[1, place]) for place in held_out]
    return [
        EvaluationRecord(step=step, role=role, domain=DOMAINS[place], count=9, accuracy=float(value), loss=1.0)
        for role, step, place, value in measured
    ]


@pytest.mark.parametrize("rule", RULES)
def test_the_rules_agree_with_numpy_on_random_records(rule: DrawRule) -> None:
    random, sets = np.random.default_rng(0), held_out_sets()
    validation = random.random((len(sets), DRAWS, SEEDS, len(STEPS), len(DOMAINS)))
    target = random.random((len(sets), DRAWS, SEEDS, 2, len(DOMAINS)))
    runs = [
        drawn_run(
            records_of(validation[place, draw, seed], target[place, draw, seed], held_out, 1),
            draw=draw,
            seed=seed,
            held_out=[DOMAINS[one] for one in held_out],
            selection="source_val",
            averaged=False,
        )
        for place, held_out in enumerate(sets)
        for draw in range(DRAWS)
        for seed in range(SEEDS)
    ]
    random.shuffle(runs)

    for t, name in enumerate(DOMAINS):  # from here on, the rules in numpy
        alone = sets.index((t,))
        sources = [place for place in range(len(DOMAINS)) if place != t]
        by_source = validation[alone][..., sources].mean(-1).max(-1)
        pairs = [target[sets.index((min(t, v), max(t, v))), :, :, 0, v] for v in sources]
        expected = {
            "source_val": by_source,
            "leave_one_out": np.mean(pairs, axis=0),
            "oracle": target[alone, :, :, 1, t],
        }[rule]
        scores = RULES[rule](runs, frozenset(name))
        found = [[scores[draw][seed] for seed in range(SEEDS)] for draw in range(DRAWS)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert best_draw(mean_scores(scores, range(SEEDS))) == int(expected.mean(1).argmax())
        assert best_draw(mean_scores(scores, [1])) == int(expected[:, 1].argmax())


def made(draw: int, seed: int, held_out: str, score: float) -> DrawnRun:
    rest = frozenset("abc") - frozenset(held_out)
    return DrawnRun(draw, seed, rest, frozenset(held_out), score, dict.fromkeys(held_out, score), {})


def test_a_draw_that_lacks_a_run_is_not_chosen() -> None:
    runs = [made(0, 0, "a", 0.5), made(0, 1, "a", 0.5), made(1, 0, "a", 0.9)]
    scores = RULES["source_val"](runs, frozenset("a"))
    assert best_draw(mean_scores(scores, (0, 1))) == 0
    assert best_draw(mean_scores(scores, (0,))) == 1
    folds = [made(draw, 0, held, 0.1 + draw) for draw in range(2) for held in ("a", "ab", "ac")]
    whole, without = RULES["leave_one_out"](folds, frozenset("a")), RULES["leave_one_out"](folds[:-1], frozenset("a"))
    assert (best_draw(mean_scores(whole, [0])), best_draw(mean_scores(without, [0]))) == (1, 0)
    assert best_draw(mean_scores(RULES["oracle"](runs, frozenset("a")), [0])) is None


def test_one_draw_for_all_targets_needs_a_score_for_each_and_ties_go_to_the_first() -> None:
    assert over_targets([{0: 0.5, 1: 0.9, 2: 0.5}, {0: 0.5, 2: 0.5}]) == {0: 0.5, 2: 0.5}
    assert best_draw({2: 0.5, 0: 0.5}) == 0
    assert over_targets([]) == {}


@pytest.mark.parametrize(
    ("steps", "every", "draws", "expected"),
    [
        (5000, 200, 20, [600, 1800]),
        (300, 100, 20, [100]),
        (300, 300, 20, []),
        (5001, 300, 27, [300, 600, 1800]),
        (9, 1, 1, []),
    ],
)
def test_draws_are_compared_at_thirds_rounded_up_to_an_evaluation(
    steps: int, every: int, draws: int, expected: list[int]
) -> None:
    assert pauses(steps, every, draws) == expected


def test_the_best_third_continues_once_all_have_reached_the_step() -> None:
    scores = {(draw, 10): draw / 10 for draw in range(6)}
    assert train_until(range(7), [10, 30], lambda d, s: scores.get((d, s))) == dict.fromkeys(range(7), 10)
    scores[6, 10] = FAILED
    first = train_until(range(7), [10, 30], lambda d, s: scores.get((d, s)))
    assert first == {**dict.fromkeys(range(7), 10), 3: 30, 4: 30, 5: 30}
    scores |= {(3, 30): 0.4, (4, 30): 0.4, (5, 30): 0.2}
    assert train_until(range(7), [10, 30], lambda d, s: scores.get((d, s))) == {**first, 3: None}  # a tie: the first


def test_failed_draws_do_not_continue_even_if_too_few_others_are_left() -> None:
    assert train_until(range(4), [10], lambda d, _: 0.5 if d == 2 else FAILED) == {0: 10, 1: 10, 2: None, 3: 10}
    assert train_until(range(2), [10], lambda *_: FAILED) == {0: 10, 1: 10}
