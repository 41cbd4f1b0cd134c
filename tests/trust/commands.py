"""Every command on every kind of file, called in this process, and its answer."""

import csv
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import messi
from messi.core.errors import MessiError
from messi.serving.export_card import card
from messi.serving.export_facts import Facts
from messi.serving.known_domains import known_domains
from tests.command import messi as messi_command

from .stage import COMPARE, REPRODUCE, TRAIN, TRAIN_FEATURES, TRAIN_HEAD, TRAIN_ROWS, config_of

Reader = Callable[[str], Any]


@dataclass(frozen=True)
class Reply:
    """The result of a call."""

    code: int
    answer: Any
    """The part that must not change, if the code is 0."""
    out: str = ""
    err: str = ""


@dataclass(frozen=True)
class Command:
    """A call, and the part of its output that is the answer."""

    name: str
    arguments: tuple[str, ...]
    read: Reader
    finds: bool = False
    """Whether it may report damage as findings with exit code 1."""
    partial: Callable[[Any, Any], bool] | None = None
    """Returns whether one answer is another one without the damaged part."""

    def __call__(self) -> Reply:
        """Call ``messi`` as a shell would."""
        done = messi_command(*self.arguments)
        answered = done.returncode == 0 or (done.returncode == 1 and self.partial)
        return Reply(done.returncode, self.read(done.stdout) if answered else None, done.stdout, done.stderr)


@dataclass(frozen=True)
class Call:
    """A call from Python."""

    name: str
    function: Callable[[], Any]
    finds: bool = False
    partial: None = None

    def __call__(self) -> Reply:
        """Call it; a MessiError is exit code 2."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                return Reply(0, self.function())
            except MessiError as error:
                return Reply(2, None, "", f"messi: {error}\n")


def _numbers(out: str) -> Any:
    return json.loads(out, parse_constant=_no_json)


def _no_json(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def _table(out: str) -> str:
    """Return the table of results, without the progress of training."""
    return out[out.index("\n Run ") :]


def _page(out: str) -> bytes:
    return Path("page.html").read_bytes()


def _trained(folder: str) -> Reader:
    """Return what a resumed run must leave, bit by bit, except the format of the description that it found."""

    def read(out: str) -> Any:
        result = json.loads(Path(folder, "result.json").read_bytes())
        found = {key: value for key, value in result.items() if key not in ("files", "checksum")}
        names = ("model.safetensors", "records.jsonl", "diagnostics.json")
        return _table(out), found, *(Path(folder, name).read_bytes() for name in names)

    return read


def _tables(out: str) -> Any:
    """Return the numbers of a plan, whether it reports runs that are left out, and every table and page."""
    with Path("plan/tables/specialisation.csv").open(newline="") as file:
        numbers = {(row["Method"], row["column"]): row["mean"] for row in csv.DictReader(file)}
    files = [*sorted(Path("plan/tables").iterdir()), *Path().glob("page.html")]
    printed = "" in numbers.values() or "left out" in out
    return numbers, printed, {path.name: path.read_bytes() for path in files}


def _compared(out: str) -> Any:
    """Return the same of a comparison, whose recommendation is part of its page."""
    with Path("comparison/tables/ranking.csv").open(newline="") as file:
        numbers = {(row["Method"], row["column"]): row["mean"] for row in csv.DictReader(file)}
    measured = ("Mean %", "Worst %", "Val. %", "ECE %", "Seconds")  # the baseline has no difference to itself
    printed = "left out" in out or "" in [number for (_, column), number in numbers.items() if column in measured]
    return numbers, printed, Path("page.html").read_bytes() if Path("page.html").exists() else b""


def _without_some(now: Any, then: Any) -> bool:
    """Return whether a plan reports that something is left out, and changes no other number."""
    numbers, printed, _ = now
    return bool(printed and all(number in ("", then[0].get(cell)) for cell, number in numbers.items()))


def _not_all_done(now: Any, then: Any) -> bool:
    """Return whether the status of a plan counts fewer finished runs, instead of showing other numbers of them."""
    return bool(now[0] != then[0])


def _predicted() -> Any:
    answers = messi.load("runs/done").predict(sorted(Path("images/paint").rglob("*.png")))
    return answers.labels, answers.probabilities.tolist()


def _described() -> str:
    """Return the card of an export, which reads the model and the results; the rest needs seconds and no file."""
    return card(Facts.of(Path("runs/done"), messi.load("runs/done"), None), "onnx", "model.onnx")


def _judged() -> Any:
    """Return what a service says about inputs, besides their class."""
    run = Path("runs/features")
    known = known_domains(run, messi.load(run))
    judged = known.bank.judge(known.bank.points)
    return known.names, known.threshold, known.quality, judged.distance.tolist(), judged.nearest.tolist()


def _exported(out: str) -> Any:
    return Path("exported.md").read_text(), "within" in out


def _run_again() -> Any:
    found = messi.run(config_of(TRAIN), out="runs/done", device="cpu")
    return found.selected_step, found.source_val, found.target


def _shown(out: str) -> Any:
    return out, Path("sheet.png").read_bytes() if "picture" in out else b""


def _verify(folder: str) -> Command:
    return Command("verify", ("verify", folder), str, finds=True)


def _data(name: str) -> list[Command]:
    return [
        Command("data show", ("data", "show", name, "--out", "sheet.png"), _shown),
        Command("data prepare", ("data", "prepare", name), str),
        Command("data verify", ("data", "verify", name), str, finds=True),
    ]


def _predict(run: str, what: str) -> Command:
    return Command("predict", ("predict", run, what, "--device", "cpu", "--format", "json"), _numbers)


def _evaluate(run: str, *more: str) -> Command:
    return Command("evaluate", ("evaluate", run, "--device", "cpu", "--format", "json", *more), _numbers)


PREDICT, EVALUATE = _predict("runs/done", "images/paint"), _evaluate("runs/done")
REPORT = Command("report", ("report", "runs/done", "--out", "page.html"), _page)
TRAIN_AGAIN = Command("train", (*TRAIN, "--out", "runs/done"), _table)
AVERAGE = Command("average", ("average", "runs/done", "--device", "cpu", "--out", "runs/average"), _table)
LOAD = Call("messi.load", _predicted)
READING: list[Command | Call] = [PREDICT, EVALUATE, LOAD]
FINISHED: list[Command | Call] = [
    *READING,
    REPORT,
    _verify("runs/done"),
    TRAIN_AGAIN,
    AVERAGE,
    Call("messi.run", _run_again),
    Call("model card", _described),
]
HALF: list[Command | Call] = [
    _predict("runs/half", "images/paint"),
    _evaluate("runs/half"),
    Command("report", ("report", "runs/half", "--out", "page.html"), _page),
    _verify("runs/half"),
    Command("train", (*TRAIN, "--out", "runs/half"), _trained("runs/half")),
]
PLAN: list[Command | Call] = [
    Command("reproduce", tuple(REPRODUCE), _tables, partial=_without_some),
    Command("report", ("report", "plan", "--out", "page.html"), _tables, partial=_without_some),
    Command("status", ("status", "plan"), str.splitlines, partial=_not_all_done),
]
COMPARISON: list[Command | Call] = [
    Command(
        "compare", ("compare", "--plan", "comparison/plan.json", "--devices", "cpu"), _compared, partial=_without_some
    ),
    Command("report", ("report", "comparison", "--out", "page.html"), _compared, partial=_without_some),
    Command("status", ("status", "comparison"), str.splitlines, partial=_not_all_done),
]
FINAL: list[Command | Call] = [
    _predict("comparison/final", "features.npz"),
    Command("export", ("export", "comparison/final", "--to", "torch", "--out", "exported.pt2"), _exported),
    Command("compare", (*COMPARE,), _compared),
    _verify("comparison"),
]
STORE: list[Command | Call] = [
    *_data("images"),
    EVALUATE,
    Command("train", (*TRAIN, "--steps", "2", "--out", "runs/new"), _trained("runs/new")),
]
ENCODED: list[Command | Call] = [
    Command("train head", (*TRAIN_HEAD, "--steps", "2", "--out", "runs/new"), _trained("runs/new")),
]
SERVED: list[Command | Call] = [Call("serve", _judged)]
PICTURE: list[Command | Call] = [*_data("images"), PREDICT, EVALUATE, TRAIN_AGAIN]
TABLE: list[Command | Call] = [*_data("table.csv"), _evaluate("runs/done", "--data", "table.csv")]
FEATURES: list[Command | Call] = [
    *_data("features.npz"),
    _predict("runs/features", "features.npz"),
    _evaluate("runs/features"),
    Command("train", (*TRAIN_FEATURES, "--out", "runs/features"), _table),
]


ROWS_CSV: list[Command | Call] = [
    *_data("rows.csv"),
    _predict("runs/rows", "rows.csv"),
    _evaluate("runs/rows"),
    _evaluate("runs/rows", "--data", "rows.csv"),
    Command("train", (*TRAIN_ROWS, "--out", "runs/rows"), _table),
]
ROWS_PARQUET: list[Command | Call] = [
    *_data("rows.parquet"),
    _predict("runs/rows", "rows.parquet"),
    _evaluate("runs/rows", "--data", "rows.parquet"),
]


def forget() -> None:
    """Clear what a call may have cached for the next one, except the compiled templates."""
    for name, module in list(sys.modules.items()):
        if name.endswith(".py"):  # a user's own method
            del sys.modules[name]
        elif name.startswith("messi.") and not name.startswith("messi.reports."):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and callable(value.cache_clear):
                    value.cache_clear()
