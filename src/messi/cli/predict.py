"""``messi predict``: classify images with a trained model."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import tyro
from torch import Tensor

from messi.cli.output import Format, Row, note, print_rows
from messi.core.errors import MessiError
from messi.data.listing import visible
from messi.data.pictures import is_picture
from messi.data.threads import single_threads
from messi.engine.prepare import pick_device
from messi.evaluation.model import Answers, Model, load

_AT_ONCE = 1024
"""Images that are held in memory."""


def main(arguments: list[str]) -> int:
    """Parse, predict and print."""
    return tyro.cli(predict, prog="messi predict", args=arguments)


def predict(
    run: tyro.conf.Positional[Path],
    paths: tyro.conf.Positional[tuple[Path, ...]],
    /,
    *,
    algorithm: Path | None = None,
    device: str | None = None,
    form: Annotated[Format, tyro.conf.arg(name="format")] = "table",
) -> int:
    """Print class, probability and expert weights of every image.

    An image that cannot be read is reported by name; the others still get their answer, and the exit code is 2.

    Args:
        run: A run folder or a model file.
        paths: Image files, or folders that are searched for them, hidden ones aside; one named twice counts once.
        algorithm: The file with the method, where it is not one of messi's own; it is run, so it must be yours.
        device: Such as cpu or cuda:0; by default a GPU if there is one.
        form: Table, CSV or JSON.

    """
    model = load(run, device=pick_device(device), algorithm=algorithm)
    files = find_images(paths)
    table: list[Row] = []
    for start in range(0, len(files), _AT_ONCE):
        read, bad = read_all(model, files[start : start + _AT_ONCE])
        for error in bad:
            note(f"messi: {error}", style="red")
        if read:
            table += rows(list(read), model.predict(list(read.values())))
    if table:
        print_rows(table, form)
    return 0 if len(table) == len(files) else 2


def find_images(paths: tuple[Path, ...]) -> list[Path]:
    """Return the named files and the image files in the named folders."""
    if not paths:
        raise MessiError("There is nothing to predict; name at least one image or folder.")
    files = []
    for path in paths:
        if path.is_dir():
            found = sorted(_images_below(path))
            if not found:
                raise MessiError(f"The folder {path} has no images; name image files or a folder with some.")
            files += found
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def _images_below(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the image files in a folder and in those below, through links as in training, unless one leads back up."""
    place = folder.resolve()
    if place in above:
        return
    for name in visible(folder):
        path = folder / name
        if path.is_dir():
            yield from _images_below(path, above | {place})
        elif is_picture(name):
            yield path


def read_all(model: Model, files: list[Path]) -> tuple[dict[Path, Tensor], list[MessiError]]:
    """Return the pictures that can be read, and the errors of those that cannot."""

    def attempt(file: Path) -> Tensor | MessiError:
        try:
            return model.read(file)
        except MessiError as error:
            return error

    with single_threads(os.cpu_count() or 1) as threads:
        found = dict(zip(files, threads.map(attempt, files), strict=True))
    read = {file: picture for file, picture in found.items() if isinstance(picture, Tensor)}
    return read, [error for error in found.values() if isinstance(error, MessiError)]


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
