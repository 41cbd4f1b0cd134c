"""The title, the first sentence and the facts at the top of a report."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from messi.reports.class_scores import CLASS_SCORES, class_scores_sentence
from messi.reports.number_format import percent
from messi.reports.result_tables import MethodResults, ResultRow, method_results
from messi.reports.runs import FinishedRun
from messi.reports.statistics import Summary, summarise

TARGET_PARTS = {"all": "the whole target", "in": "DomainBed's “in” part of the target"}
_MOST_NAMES = 12


def title(runs: Sequence[FinishedRun]) -> str:
    """Return the methods and the data."""
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    return f"{_listed(algorithms)} on {_listed(list(dict.fromkeys(run.data for run in runs)))}"


def summary(runs: Sequence[FinishedRun], rows: Sequence[ResultRow]) -> str:
    """Return the result in one sentence."""
    if not all(row.targets for row in rows):
        return _without_target(rows)
    if len(rows) == 1:
        return _of_one(runs[0], rows[0])
    if _comparable(runs):
        return _compared(rows)
    methods = method_results(runs)
    if methods and any(one.average for one in methods.methods):
        return _held_out_in_turn(methods)
    means = sorted(row.target_mean for row in rows)
    return (
        f"{len(rows)} runs with different settings reach {percent(means[0])}\u00a0% to {percent(means[-1])}\u00a0% "
        "accuracy on domains that were held out of training."
    )


def facts(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return what was run, by heading."""
    methods = Counter(run.algorithm for run in runs)
    sources = {len(run.sources) for run in runs}
    return {
        "Methods": ", ".join(f"{name} ({_count(number, 'run')})" for name, number in methods.items()),
        "Data": _few(f"{run.data}, {_count(len(run.classes), 'class', 'classes')}" for run in runs),
        "Held out": _few(name for run in runs for name in run.targets) or "no domain",
        "Trained on": f"{_listed([str(number) for number in sorted(sources)])} source "
        f"{'domain' if sources == {1} else 'domains'}: {_few(name for run in runs for name in run.sources)}",
        "Seeds": _few(str(run.seed) for run in runs),
        "Selection": _few(run.selection for run in runs),
        # Without one for every run, the name would seem to apply to all; the table of runs has it for each.
        "Recipe": _few(run.recipe for run in runs) if all(run.recipe for run in runs) else "",
        "Protocol": _few(run.protocol for run in runs),
        "Tested on": _few(TARGET_PARTS.get(run.target_part, run.target_part) for run in runs if run.targets),
        "Version": _few(f"messi-dg {run.version}" for run in runs),
    }


def _comparable(runs: Sequence[FinishedRun]) -> bool:
    """Return whether the runs share data and target, and those of one algorithm differ only in the seed."""
    tasks = {(run.fingerprint, run.targets, run.target_part) for run in runs}
    configs = {json.dumps({**run.config, "seed": None}, sort_keys=True) for run in runs}
    return len(tasks) == 1 and len(configs) == len({run.algorithm for run in runs})


def _of_one(run: FinishedRun, row: ResultRow) -> str:
    trained = f"Trained on {_count(len(run.sources), 'source domain')}"
    method = f"the average of {row.averaged_runs} runs of {row.algorithm}" if row.averaged_runs else row.algorithm
    reached = f"{trained}, {method} reaches {percent(row.target_mean)}\u00a0% accuracy on {_target(row)}."
    scores = [record.class_scores for record in row.targets if record.class_scores]
    if not scores:
        return reached
    means = (100 * statistics.fmean(getattr(one, name) for one in scores) for name in CLASS_SCORES)
    return f"{reached} {class_scores_sentence(*means)}"


def _target(row: ResultRow) -> str:
    examples = _count(sum(record.count for record in row.targets), "example")
    domains = _listed([record.domain for record in row.targets])
    if len(row.targets) == 1:
        return f"the held-out domain {domains} ({examples})"
    return f"the held-out domains {domains} (mean over domains, {examples})"


def _compared(rows: Sequence[ResultRow]) -> str:
    texts = []
    for algorithm in dict.fromkeys(row.algorithm for row in rows):
        found = summarise([row.target_mean for row in rows if row.algorithm == algorithm])
        number = f" (n = {found.n} runs)" if found.n > 1 else ""
        texts.append(f"{algorithm} {_percent(found)}{number}")
    ending = "; ± is the sample standard deviation over runs" if len(texts) < len(rows) else ""
    return f"Accuracy on {_target(rows[0])}: {_listed(texts)}{ending}."


def _held_out_in_turn(results: MethodResults) -> str:
    texts = [
        f"{one.label} {_percent(one.average)} ({_count(one.average.n, 'seed')}; "
        f"worst domain {one.worst.target}, {percent(one.worst.summary.mean)}\u00a0%)"
        for one in results.methods
        if one.average and one.worst
    ]
    return f"Mean accuracy over {_count(len(results.targets), 'domain')}, each held out in turn: {_listed(texts)}."


def _without_target(rows: Sequence[ResultRow]) -> str:
    best = max(rows, key=lambda row: row.validation)
    lacking = "No domain was held out" if not any(row.targets for row in rows) else "Not every run held out a domain"
    return (
        f"{lacking}, so the accuracy on a new domain is unknown; {best.label} reaches "
        f"{percent(best.validation)}\u00a0% accuracy on the validation data."
    )


def _percent(found: Summary) -> str:
    spread = "" if found.spread is None else f"\u00a0±\u00a0{percent(found.spread)}"
    return f"{percent(found.mean)}{spread}\u00a0%"


def _few(words: Iterable[str]) -> str:
    """Return different words once each; of many, the first and the number of the rest."""
    found = list(dict.fromkeys(words))
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
