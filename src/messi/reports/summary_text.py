"""The title, the first sentence and the facts at the head of a report."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from messi.core.records import Role
from messi.reports.methods import MethodTable, method_table
from messi.reports.runs import FinishedRun
from messi.reports.statistics import Summary, summarise
from messi.reports.tables import ResultRow, percent

_PARTS = {"all": "all of the target", "in": "DomainBed's “in” part of the target"}
_ROLES: dict[Role, str] = {
    "target": "target, unseen",
    "source_val": "source, validation part",
    "source_test": "source, test part",
    "unseen_val": "unseen, validation part",
}
_MOST_NAMES = 12


def title(runs: Sequence[FinishedRun]) -> str:
    """Return which methods are on which data."""
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    return f"{_listed(algorithms)} on {_listed(list(dict.fromkeys(run.data for run in runs)))}"


def summary(runs: Sequence[FinishedRun], rows: Sequence[ResultRow]) -> str:
    """Return the result in one sentence."""
    if not all(row.targets for row in rows):
        return _without_target(rows)
    if len(rows) == 1:
        return _of_one(runs[0], rows[0])
    if _comparable(runs):
        return f"On {_unseen(rows[0])}: {_compared(rows)}."
    table = method_table(runs)
    if table and any(row.average for row in table.rows):
        return _held_out_in_turn(table)
    means = sorted(row.target_mean for row in rows)
    return (
        f"{len(rows)} runs with different settings: from {percent(means[0])}\u00a0% to "
        f"{percent(means[-1])}\u00a0% correct on domains that no training step saw."
    )


def facts(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return what was run, by heading."""
    methods = Counter(run.algorithm for run in runs)
    sources = {len(run.sources) for run in runs}
    return {
        "Methods": ", ".join(f"{name} ({_count(number, 'run')})" for name, number in methods.items()),
        "Data": _few(f"{run.data}, {_count(len(run.classes), 'class', 'classes')}" for run in runs),
        "Held out": _few(name for run in runs for name in run.targets) or "nothing",
        "Trained on": f"{_listed([str(number) for number in sorted(sources)])} source "
        f"{'domain' if sources == {1} else 'domains'}: {_few(name for run in runs for name in run.sources)}",
        "Seeds": _few(str(run.seed) for run in runs),
        "Selection": _few(run.selection for run in runs),
        "Protocol": _few(run.protocol for run in runs),
        "Tested on": _few(part_in_words(run.target_part) for run in runs if run.targets),
        "Version": _few(f"messi-dg {run.version}" for run in runs),
    }


def part_in_words(part: str) -> str:
    """Say which part of a target domain was evaluated."""
    return _PARTS.get(part, part)


def role_in_words(role: Role) -> str:
    """Say what the examples of a role are."""
    return _ROLES.get(role, role)


def spread_in_words(cell: Summary) -> str:
    """Return a mean of shares in percent with its deviation and n."""
    spread = "" if cell.spread is None else f"\u00a0±\u00a0{percent(cell.spread)}"
    return f"{percent(cell.mean)}{spread}"


def _comparable(runs: Sequence[FinishedRun]) -> bool:
    """Tell whether the runs share data and target, and those of one algorithm differ in nothing but the seed."""
    tasks = {(run.fingerprint, run.targets, run.target_part) for run in runs}
    configs = {json.dumps({**run.config, "seed": None}, sort_keys=True) for run in runs}
    return len(tasks) == 1 and len(configs) == len({run.algorithm for run in runs})


def _of_one(run: FinishedRun, row: ResultRow) -> str:
    trained = f"Trained on {_count(len(run.sources), 'domain')}"
    return f"{trained}, {row.algorithm} is right on {percent(row.target_mean)}\u00a0% of {_unseen(row)}."


def _unseen(row: ResultRow) -> str:
    examples = _count(sum(record.count for record in row.targets), "example")
    domains = _listed([record.domain for record in row.targets])
    if len(row.targets) == 1:
        return f"the {examples} of {domains}, a domain that no training step saw"
    return f"the {examples} of {domains}, domains that no training step saw (mean over domains)"


def _compared(rows: Sequence[ResultRow]) -> str:
    texts = []
    for algorithm in dict.fromkeys(row.algorithm for row in rows):
        found = summarise([row.target_mean for row in rows if row.algorithm == algorithm])
        number = f" (n = {found.n} runs)" if found.n > 1 else ""
        texts.append(f"{algorithm} {spread_in_words(found)}\u00a0%{number}")
    ending = "; ± is the sample standard deviation over runs" if len(texts) < len(rows) else ""
    return f"{_listed(texts)} correct{ending}"


def _held_out_in_turn(table: MethodTable) -> str:
    texts = [
        f"{row.label} {spread_in_words(row.average)}\u00a0% ({_count(row.average.n, 'seed')}; "
        f"worst {row.worst.target}, {percent(row.worst.summary.mean)}\u00a0%)"
        for row in table.rows
        if row.average and row.worst
    ]
    domains = _count(len(table.targets), "domain")
    return f"Correct on the mean over {domains}, each held out of training in its turn: {_listed(texts)}."


def _without_target(rows: Sequence[ResultRow]) -> str:
    best = max(rows, key=lambda row: row.validation)
    return (
        f"{'No' if len(rows) == 1 else 'Not every'} run held a domain out, so how well the models do on a new one is "
        f"not known; {best.label} is right on {percent(best.validation)}\u00a0% of the validation data."
    )


def _few(words: Iterable[str]) -> str:
    """Return different words once each, and of very many the first and how many more there are."""
    found = list(dict.fromkeys(words))
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
