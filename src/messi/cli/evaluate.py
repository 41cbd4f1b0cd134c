"""``messi evaluate``: how well a trained model does."""

import argparse
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.output import Format, Row, print_rows
from messi.core.precision import StatedPrecision
from messi.data.datasets.common.base import DataConfig
from messi.data.find import find_data
from messi.engine.evaluate import evaluate_run


def main(arguments: list[str]) -> int:
    """Parse, evaluate and print; the data determines which options exist."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--data")
    chosen, _ = first.parse_known_args(arguments)
    default = find_data(chosen.data) if chosen.data else None

    def evaluate(
        run: tyro.conf.Positional[Annotated[Path, shown_as("RUN")]],
        /,
        *,
        data: Annotated[str | None, shown_as("DATA")] = None,  # noqa: ARG001 (read above, shown here)
        algorithm: Annotated[Path | None, shown_as("FILE")] = None,
        device: Annotated[str | None, shown_as("DEVICE")] = None,
        precision: StatedPrecision | None = None,
        form: Annotated[Format, tyro.conf.arg(name="format")] = "table",
        config: Annotated[DataConfig | None, tyro.conf.arg(name="")] = default,
    ) -> int:
        """Measure the selected model of a finished run on its validation and target data, or on other data.

        The run's own data is recognised by its content, even if it has moved. In other data, examples that the run has
        seen are listed in the role that they had in the run (train, source_val, ...), and all others as target.

        Args:
            run: A run folder; with --data also a model file, which recognises only the complete data of its run.
            data: Other data, anything that 'messi train --data' accepts; add --help after it to see its options.
            algorithm: The file of your own method. It is executed, so name only files that you trust.
            device: Such as cpu or cuda:0; by default a GPU if there is one.
            precision: Number format of the network; by default that which the run stated, or else that of the device.
            form: Table, CSV or JSON.
            config: Options of the other data.

        """
        records = evaluate_run(run, data=config, device=device, precision=precision, algorithm=algorithm)
        rows: list[Row] = [
            {
                "role": r.role,
                "domain": r.domain,
                "n": r.count,
                "accuracy": r.accuracy,
                **(vars(r.class_scores) if r.class_scores else {}),
                "loss": r.loss,
            }
            for r in records
        ]
        print_rows(rows, form)
        return 0

    return tyro.cli(evaluate, prog="messi evaluate", args=arguments, config=FLAT)
