"""``messi predict``: classify images with a trained model."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from torch import Tensor

from messi.cli.output import Format, Row, print_rows
from messi.core.errors import MessiError
from messi.data.pictures import SUFFIXES
from messi.engine.run import pick_device
from messi.evaluation.model import Answers, Model, load


def main(arguments: list[str]) -> int:
    """Parse, predict and print."""
    return tyro.cli(predict, prog="messi predict", args=arguments)


def predict(
    run: tyro.conf.Positional[Path],
    paths: tyro.conf.Positional[tuple[Path, ...]],
    /,
    *,
    device: str | None = None,
    form: Annotated[Format, tyro.conf.arg(name="format")] = "table",
) -> int:
    """Print class, probability and expert weights of every image.

    An image that cannot be read is reported by name; the others still get their answer, and the exit code is 2.

    Args:
        run: A run folder or a model file.
        paths: Image files, or folders that are searched for them.
        device: Such as cpu or cuda:0; by default a GPU if there is one.
        form: Table, CSV or JSON.

    """
    model = load(run, device=pick_device(device))
    files = find_images(paths)
    read, bad = read_all(model, files)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    for error in bad:
        errors.print(f"messi: {error}", style="red", markup=False)
    if read:
        print_rows(rows(list(read), model.predict(list(read.values()))), form)
    return 2 if bad else 0


def find_images(paths: tuple[Path, ...]) -> list[Path]:
    """Return the named files and the image files in the named folders."""
    if not paths:
        raise MessiError("There is nothing to predict; name at least one image or folder.")
    files = []
    for path in paths:
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
            if not found:
                raise MessiError(f"The folder {path} has no images.")
            files += found
        else:
            files.append(path)
    return files


def read_all(model: Model, files: list[Path]) -> tuple[dict[Path, Tensor], list[MessiError]]:
    """Return the pictures that can be read, and the errors of those that cannot."""
    read, bad = {}, []
    for file in files:
        try:
            read[file] = model.read(file)
        except MessiError as error:
            bad.append(error)
    return read, bad


def rows(files: list[Path], answers: Answers) -> list[Row]:
    """Return one row per image."""
    table = []
    for index, (file, label) in enumerate(zip(files, answers.labels, strict=True)):
        row: Row = {
            "image": str(file),
            "class": label,
            "probability": float(answers.probabilities[index].max()),
        }
        if answers.experts is not None:
            row |= {f"expert{m}": weight for m, weight in enumerate(answers.experts[index].tolist(), start=1)}
        table.append(row)
    return table
