"""The runs that an average was made from, each next to the average."""

from collections import Counter
from pathlib import Path

from messi.core.run_documents import AveragedScores
from messi.evaluation.selection import select
from messi.reports.number_format import percent
from messi.reports.runs import FinishedRun
from messi.reports.table import Cell, Column, Row, Table

NAME = "Run"


def averaged_rows(run: FinishedRun) -> list[dict[str, str]]:
    """Return a row for every run that was considered, with what distinguishes it, and one for their average."""
    if run.average is None:
        return []
    names = [Path(one.path).name for one in run.average.runs]
    if len(set(names)) < len(names):
        names = [one.path for one in run.average.runs]
    settings = dict.fromkeys(name for one in run.average.runs for name in one.settings)
    short = Counter(name.rpartition(".")[2] for name in settings)
    heads = {name: last if short[last := name.rpartition(".")[2]] == 1 else name for name in settings}
    rows = [
        {NAME: name, **{head: one.settings.get(key, "") for key, head in heads.items()}, **_scores(run, scores)}
        for name, one, scores in zip(names, run.average.runs, run.averaged_runs, strict=True)
    ]
    target = {record.domain: record.accuracy for record in run.selected("target")}
    rule = run.config["training"]["selection"]
    whole = AveragedScores(validation=select(run.records, rule, averaged=True).score, target=target, kept=True)
    kept = sum(scores.kept for scores in run.averaged_runs)
    end = {**_scores(run, whole), "In the average": f"{kept} of {len(rows)}"}
    return [*rows, {NAME: run.selection, **dict.fromkeys(heads.values(), ""), **end}]


def averaged_table(run: FinishedRun) -> Table | None:
    """Return the same as a table; None for a run that was trained."""
    rows = averaged_rows(run)
    if not rows:
        return None
    columns = [name for name in rows[0] if name != NAME]
    return Table(
        name="averaged runs",
        heads=(NAME,),
        columns=tuple(Column(name, "none") for name in columns),
        groups=(tuple(Row((row[NAME],), tuple(Cell(text=row[name]) for name in columns)) for row in rows),),
    )


def _scores(run: FinishedRun, scores: AveragedScores) -> dict[str, str]:
    greedy = run.average is not None and run.average.choice == "greedy"
    tried = {"Average with it %": "" if scores.with_it is None else percent(scores.with_it)} if greedy else {}
    return {
        "Validation %": percent(scores.validation),
        **{f"Target {domain} %": percent(accuracy) for domain, accuracy in scores.target.items()},
        **tried,
        "In the average": "yes" if scores.kept else "no",
    }
