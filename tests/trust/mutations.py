"""The numbered mutations: which file is damaged, in which way, and which answers are allowed."""

import functools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import commands, damage, hostile
from .commands import Call, Command
from .forge import Form, Seal, forge
from .stage import Stage

SEED = 0
Rule = Literal["exact", "safe"]
"""After damage, a command refuses or gives the undamaged answer ("exact"). A deliberate change, with a matching
checksum or to input without one, may give another answer ("safe"), but no traceback, hang, foreign code or
exhausted memory."""
Change = Callable[[Stage, str, random.Random], None]


@dataclass(frozen=True)
class Subject:
    """A run, a plan, a store or other data whose files are damaged."""

    folder: str
    files: Mapping[str, Form]
    calls: list[Command | Call]
    other: str = ""
    """A folder with files of the same names that belong to something else."""
    rule: Rule = "exact"
    hostile: Mapping[str, damage.Bytes] | None = None


@dataclass(frozen=True)
class Mutation:
    """One damage to one file."""

    subject: Subject
    file: str
    kind: str
    rule: Rule
    change: Change

    def apply(self, stage: Stage, number: int) -> None:
        """Damage the file."""
        rng = random.Random(f"{SEED}/{number}")  # noqa: S311 (no secret)
        self.change(stage, self.file, rng)


RUN: dict[str, Form] = {
    "run.json": "json",
    "records.jsonl": "lines",
    "model.safetensors": "tensors",
    "last.safetensors": "tensors",
    "result.json": "json",
    "diagnostics.json": "json",
    "timing.json": "json",
    "examples/target-0-0.png": "binary",
    "lock": "empty",
}
HALF = {
    name: form for name, form in RUN.items() if name in ("run.json", "records.jsonl") or form in ("tensors", "empty")
}
REMOVABLE = ("result.json", "diagnostics.json", "timing.json", "last.safetensors")
"""Messages ask users to delete these: to finish a run again, to report without them, or to train from the beginning."""
PLANNED: dict[str, Form] = {
    "run.json": "json",
    "records.jsonl": "lines",
    "result.json": "json",
    "diagnostics.json": "json",
    "specialisation.json": "json",
    "model.safetensors": "tensors",
}
COMPARED = {name: form for name, form in PLANNED.items() if name in RUN}
ENCODED: dict[str, Form] = {"000000.safetensors": "tensors", "lock": "empty"}
STORE: dict[str, Form] = {"pixels": "binary", "journal": "lines", "index.csv": "binary", "lock": "empty"}


def subjects(stage: Stage) -> list[Subject]:
    """Return everything that mutations damage."""
    first, second = (str(path.relative_to(stage.root)) for path in sorted(stage.root.glob("plan/runs/*")))
    compared, other_compared, *_ = (
        str(path.relative_to(stage.root)) for path in sorted(stage.root.glob("comparison/runs/*"))
    )
    store, other = (str(next(Path("home/stores").glob(f"{name}-*"))) for name in ("images", "others"))
    return [
        Subject("runs/done", RUN, commands.FINISHED, "runs/other"),
        Subject("runs/half", HALF, commands.HALF, "runs/other"),
        Subject("plan", {"plan.json": "json", "runs.json": "json"}, commands.PLAN),
        Subject(first, PLANNED, commands.PLAN, second),
        Subject("comparison", {"plan.json": "json", "runs.json": "json"}, commands.COMPARISON),
        Subject(compared, COMPARED, commands.COMPARISON, other_compared),
        Subject("comparison/final", {"model.safetensors": "tensors"}, commands.FINAL),
        Subject(store, STORE, commands.STORE, other),
        Subject(_encoded("runs/head"), ENCODED, commands.ENCODED, _encoded("runs/other_head")),
        Subject("runs/features", {"novelty.safetensors": "tensors"}, commands.SERVED, "runs/other_features"),
        Subject("images/paint/cat", {"0.png": "binary"}, commands.PICTURE, rule="safe", hostile=hostile.PICTURES),
        Subject(".", {"features.npz": "binary"}, commands.FEATURES, rule="safe", hostile=hostile.ARCHIVES),
        Subject(".", {"table.csv": "binary"}, commands.TABLE, rule="safe", hostile=hostile.TABLES),
        Subject(".", {"rows.csv": "binary"}, commands.ROWS_CSV, rule="safe", hostile=hostile.ROWS),
        Subject(".", {"rows.parquet": "binary"}, commands.ROWS_PARQUET, rule="safe", hostile=hostile.PARQUET),
    ]


def _encoded(run: str) -> str:
    """Return the folder with the features of the images of a run."""
    data = json.loads(Path(run, "run.json").read_bytes())["data"].encode()
    return str(next(path.parent for path in Path("home/features").glob("*/*.safetensors") if data in path.read_bytes()))


def _content(function: damage.Bytes) -> Change:
    def change(stage: Stage, file: str, rng: random.Random) -> None:
        stage.damage(file, function(stage.files[file][0], rng))

    return change


def _special(function: Callable[[Path], None]) -> Change:
    def change(stage: Stage, file: str, rng: random.Random) -> None:
        stage.dirty.add(file)
        function(stage.root / file)

    return change


def _edit(form: Form, function: damage.Edit, seal: Seal) -> Change:
    return lambda stage, file, rng: forge(stage, file, form, function, seal, rng)


def _swap(other: str) -> Change:
    def change(stage: Stage, file: str, rng: random.Random) -> None:
        stage.damage(file, stage.files[other][0])

    return change


def _ways(subject: Subject, name: str, form: Form) -> Iterator[tuple[str, Rule, Change]]:
    """Yield every way to damage a file."""
    special = damage.PRESENT if name in REMOVABLE else damage.PRESENT | damage.ABSENT
    ways = {kind: _special(place) for kind, place in special.items()}
    if form != "empty":
        ways |= {kind: _content(function) for kind, function in _contents(subject, name, form).items()}
        ways |= {kind: _swap(other) for kind, other in _others(subject, name, form).items()}
    yield from ((kind, subject.rule, change) for kind, change in ways.items())
    if form in ("json", "lines", "tensors"):
        yield from _edits(name, form)


def _contents(subject: Subject, name: str, form: Form) -> dict[str, damage.Bytes]:
    text = form in ("json", "lines") or name.endswith(".csv")
    headers = hostile.HEADERS if form == "tensors" else {}
    return {**damage.BYTES, **(damage.LINES if text else {}), **headers, **(subject.hostile or {})}


def _others(subject: Subject, name: str, form: Form) -> dict[str, str]:
    """Return whole files that could take the place of this one."""
    neighbours = [other for other, its in subject.files.items() if other != name and its == form]
    found = {f"its neighbour {other}": f"{subject.folder}/{other}" for other in neighbours}
    return {**found, **({"that of another": f"{subject.other}/{name}"} if subject.other else {})}


def _edits(name: str, form: Form) -> Iterator[tuple[str, Rule, Change]]:
    own = {"plan.json": hostile.PLANS, "last.safetensors": hostile.STATES}
    forgeries = {**own, "run.json": hostile.CONFIGS, "model.safetensors": hostile.CONFIGS}.get(name, {})
    for kind, edit in {**damage.EDITS, **forgeries}.items():
        yield kind, "exact", _edit(form, edit, "stale")
        yield f"{kind}, forged", "safe", _edit(form, edit, "matching")
    for kind, edit in forgeries.items():
        yield f"{kind}, of 0.1", "safe", _edit(form, edit, "none")


@functools.cache
def _all(root: Path) -> list[Mutation]:
    """Return all mutations in an order in which the first few show every kind."""
    stage = Stage(root)
    found = [
        Mutation(subject, str(Path(subject.folder) / name), kind, rule, change)
        for subject in subjects(stage)
        for name, form in subject.files.items()
        for kind, rule, change in _ways(subject, name, form)
    ]
    random.Random(SEED).shuffle(found)  # noqa: S311
    seen: Counter[str] = Counter()
    rank = {}
    for index, one in enumerate(found):
        rank[index] = seen[one.kind]
        seen[one.kind] += 1
    return [found[index] for index in sorted(rank, key=lambda index: rank[index])]


def mutation(stage: Stage, number: int) -> Mutation:
    """Return the mutation of a number; numbers beyond the list repeat it with other random values."""
    every = _all(stage.root)
    return every[number % len(every)]
