"""``messi evaluate``: how good a trained model is."""

import argparse
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.output import Format, Row, print_rows
from messi.cli.common.sources import find_data
from messi.data.datasets.common.base import DataConfig
from messi.engine.evaluate import evaluate_run


def main(arguments: list[str]) -> int:
    """Parse, evaluate and print; which options exist depends on the data."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--data")
    chosen, _ = first.parse_known_args(arguments)
    default = find_data(chosen.data) if chosen.data else None

    def evaluate(
        run: tyro.conf.Positional[Path],
        /,
        *,
        data: str | None = None,  # noqa: ARG001 (read above, shown here)
        algorithm: Path | None = None,
        device: str | None = None,
        form: Annotated[Format, tyro.conf.arg(name="format")] = "table",
        config: Annotated[DataConfig | None, tyro.conf.arg(name="")] = default,
    ) -> int:
        """Measure the selected model of a finished run on its source validation and target data, or on other data.

        The run's own data is recognised by its content, wherever --data says that it lies. In other data, examples
        that the run has seen are listed in the role that they had there (train, source_val, ...), all others as target.

        Args:
            run: A run folder; with --data, a model file will do, but outside of its run folder it cannot tell which
                examples it was trained on.
            data: Other data to measure on, whatever 'messi train --data' takes; add --help after it for its options.
            algorithm: The file with the method, where it is not one of messi's own; it is run, so it must be yours.
            device: Such as cpu or cuda:0; by default a GPU if there is one.
            form: Table, CSV or JSON.
            config: The other data's own options.

        """
        records = evaluate_run(run, data=config, device=device, algorithm=algorithm)
        rows: list[Row] = [
            {"role": r.role, "domain": r.domain, "n": r.count, "accuracy": r.accuracy, "loss": r.loss} for r in records
        ]
        print_rows(rows, form)
        return 0

    flat = (tyro.conf.OmitArgPrefixes, tyro.conf.SuppressFixed, tyro.conf.AvoidSubcommands)
    return tyro.cli(evaluate, prog="messi evaluate", args=arguments, config=flat)
