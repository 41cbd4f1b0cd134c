"""Damaged and hostile files: a one-sentence error with exit code 2, or exactly the answer of the undamaged file.

Every mutation has a number, which a failure prints. To repeat one, or to group the failures of many:

    MESSI_MUTATION=1234 pytest tests/trust
    MESSI_MUTATION=0-2199 MESSI_MUTATION_REPORT=failures.md pytest tests/trust
"""

import os
import random
from collections.abc import Callable, Iterator

import pytest

from .commands import FINISHED, READING, Call, Command, Reply
from .forge import Seal, forge
from .guard import Outcome, limited_memory, watched
from .mutations import RUN, SEED, Mutation, mutation
from .stage import Stage, staged

IN_CI, NIGHTLY = 200, 2000
Replies = dict[Command | Call, Reply]


def _numbers() -> list[object]:
    if asked := os.environ.get("MESSI_MUTATION"):
        first, _, last = asked.partition("-")
        return list(range(int(first), int(last or first) + 1))
    return [*range(IN_CI), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(IN_CI, IN_CI + NIGHTLY))]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage").resolve()) as made, limited_memory():
        yield made


@pytest.fixture(autouse=True)
def home(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the stores of the stage; all other tests have their own."""
    monkeypatch.setenv("MESSI_HOME", str(stage.root / "home"))


@pytest.fixture(scope="module")
def undamaged(stage: Stage) -> Replies:
    """The replies on the undamaged files by call, filled as they become known."""
    return {}


@pytest.mark.parametrize(
    ("name", "seal", "calls"),
    [
        *((name, "matching", FINISHED) for name, form in RUN.items() if form in ("json", "lines", "tensors")),
        ("model.safetensors", "none", READING),
    ],
)
def test_a_forgery_without_changes_gives_the_same_answer(
    name: str, seal: Seal, calls: list[Command | Call], stage: Stage, undamaged: Replies
) -> None:
    """Otherwise the checksums would refuse every forgery, and the checks behind them would not be tested."""
    for call in calls:
        expected = _undamaged(call, stage, undamaged)
        forge(stage, f"runs/done/{name}", RUN[name], lambda document, _rng: document, seal, random.Random(0))  # noqa: S311
        assert watched(call, expected)[0].verdict == "same", call.name


@pytest.mark.parametrize("number", _numbers())
def test_a_damaged_file_is_refused_or_makes_no_difference(
    number: int,
    stage: Stage,
    undamaged: Replies,
    record_property: Callable[[str, object], None],
) -> None:
    one = mutation(stage, number)
    outcomes = {call.name: _outcome(call, one, number, stage, undamaged) for call in one.subject.calls}
    failures = {name: outcome for name, outcome in outcomes.items() if _is_failure(outcome, one)}
    failures |= _overlooked(outcomes, one)
    record_property("mutation", _recorded(number, one, outcomes, failures))
    assert not failures, _story(number, one, failures)


def _outcome(call: Command | Call, one: Mutation, number: int, stage: Stage, undamaged: Replies) -> Outcome:
    expected = _undamaged(call, stage, undamaged)
    one.apply(stage, number)
    return watched(call, expected, stage.root / one.file)[0]


def _undamaged(call: Command | Call, stage: Stage, undamaged: Replies) -> Reply:
    """Return the reply of a call on the undamaged files, and restore these."""
    if call not in undamaged:
        stage.restore()
        undamaged[call] = _reply(call)
        stage.restore()
        assert _reply(call) == undamaged[call], f"{call.name} gives two different answers"
    stage.restore()
    return undamaged[call]


def _reply(call: Command | Call) -> Reply:
    outcome, reply = watched(call)
    assert outcome.verdict == "same", outcome
    return Reply(reply.code, reply.answer)


def _is_failure(outcome: Outcome, one: Mutation) -> bool:
    return outcome.verdict == "failed" or (outcome.verdict == "different" and one.rule == "exact")


def _overlooked(outcomes: dict[str, Outcome], one: Mutation) -> dict[str, Outcome]:
    """Return the verifying commands that accept a file which another command refuses."""
    if one.rule == "safe" or one.file.endswith("lock") or not any(o.verdict == "refused" for o in outcomes.values()):
        return {}
    content = [name for name, outcome in outcomes.items() if "verify" in name and outcome.verdict == "same"]
    return dict.fromkeys(content, Outcome("failed", "damage overlooked"))


def _recorded(
    number: int, one: Mutation, outcomes: dict[str, Outcome], failures: dict[str, Outcome]
) -> dict[str, object]:
    """Return the values for the summary; plain, because it may be printed by another process."""
    verdicts = {outcome.verdict for outcome in outcomes.values()}
    end = "different" if "different" in verdicts else "refused" if verdicts & {"refused", "found"} else "same"
    found = [(name, o.what or "different answer", o.where, o.detail) for name, o in failures.items()]
    about = {"number": number, "seed": SEED, "file": one.file, "kind": one.kind, "calls": len(outcomes)}
    return {**about, "end": "failed" if failures else end, "failures": found}


def _story(number: int, one: Mutation, failures: dict[str, Outcome]) -> str:
    lines = [f"mutation {number} (seed {SEED}): {one.kind} in {one.file}"]
    lines += [f"  {name}: {o.what or 'different answer'} {o.where} {o.detail}" for name, o in failures.items()]
    return "\n".join([*lines, f"  MESSI_MUTATION={number} pytest tests/trust repeats it"])
