"""``messi evaluate``: how good a trained model is."""

from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.output import Format, Row, print_rows
from messi.cli.sources import find_data
from messi.engine.evaluate import evaluate_run


def main(arguments: list[str]) -> int:
    """Parse, evaluate and print."""
    return tyro.cli(evaluate, prog="messi evaluate", args=arguments)


def evaluate(
    run: tyro.conf.Positional[Path],
    /,
    *,
    data: str | None = None,
    device: str | None = None,
    form: Annotated[Format, tyro.conf.arg(name="format")] = "table",
) -> int:
    """Measure the selected model of a run on its source validation and target data, or on other data.

    Args:
        run: A run folder.
        data: Other data to measure on: a folder domain/class/image or a data set by name.
        device: Such as cpu or cuda:0; by default a GPU if there is one.
        form: Table, CSV or JSON.

    """
    records = evaluate_run(run, data=find_data(data) if data else None, device=device)
    rows: list[Row] = [
        {"role": r.role, "domain": r.domain, "n": r.count, "accuracy": r.accuracy, "loss": r.loss} for r in records
    ]
    print_rows(rows, form)
    return 0
