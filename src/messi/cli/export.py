"""``messi export``: a trained model as one file that runs without messi."""

from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import shown_as
from messi.cli.common.output import say
from messi.serving.export import ExportFormat
from messi.serving.export import export as export_model


def main(arguments: list[str]) -> int:
    """Parse, export and print."""
    return tyro.cli(export, prog="messi export", args=arguments)


def export(
    run: tyro.conf.Positional[Annotated[Path, shown_as("RUN")]],
    /,
    *,
    to: ExportFormat = "onnx",
    out: Annotated[Path | None, shown_as("FILE")] = None,
    licence: Annotated[str | None, shown_as("TEXT")] = None,
    algorithm: Annotated[Path | None, shown_as("FILE")] = None,
) -> int:
    """Write a model as one file that takes raw images or features, and a model card next to it.

    Resizing, normalisation, network and softmax are inside the file; class names and licence are in its metadata. The
    file is compared with the model before it is kept. ONNX requires: pip install 'messi-dg[export]'.

    Args:
        run: A run folder or a model file.
        to: For ONNX Runtime and others, or for torch.export.load.
        out: The file; by default named after the run, in the current folder. The card has the suffix .md.
        licence: The licence of the model; by default, the licences of its parts are listed.
        algorithm: The file of your own method. It is executed, so name only files that you trust.

    """
    exported = export_model(run, to=to, out=out, licence=licence, algorithm=algorithm)
    say(
        f"model  {exported.path} (probabilities within {exported.difference:.1g} of the run's model)",
        f"card   {exported.card}",
    )
    return 0
