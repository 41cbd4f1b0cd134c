"""``messi predict``: classify images or features with a trained model."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import tyro
from torch import Tensor

from messi.cli.common.options import shown_as
from messi.cli.common.output import Format, Row, note, print_rows
from messi.cli.common.predicted_table import predict_table, require_table_file, rows_table, show_table, write_table
from messi.core.errors import MessiError
from messi.core.precision import StatedPrecision
from messi.data.datasets.arrays import read_inputs
from messi.data.datasets.common.tables import SUFFIXES
from messi.data.image_files import is_picture
from messi.data.listing import visible
from messi.data.threads import worker_threads
from messi.engine.build import pick_device
from messi.evaluation.model import Answers, Model, load

_AT_ONCE = 1024
"""Number of images in memory at a time."""


def main(arguments: list[str]) -> int:
    """Parse, predict and print."""
    return tyro.cli(predict, prog="messi predict", args=arguments)


def predict(  # noqa: PLR0913 (one for each option)
    run: tyro.conf.Positional[Annotated[Path, shown_as("RUN")]],
    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], shown_as("PATH ...")]],
    /,
    *,
    algorithm: Annotated[Path | None, shown_as("FILE")] = None,
    inputs_array: str = "inputs",
    vectors: Annotated[Path | None, shown_as("FILE")] = None,
    out: Annotated[Path | None, shown_as("FILE")] = None,
    device: Annotated[str | None, shown_as("DEVICE")] = None,
    precision: StatedPrecision | None = None,
    form: Annotated[Format, tyro.conf.arg(name="format")] = "table",
) -> int:
    """Print class, probability and expert weights for every image, or for every row of features.

    Folders are searched for images, except hidden ones; a file that is named twice counts once. An image that cannot be
    read is reported; the others are still classified, and the exit code is 2. The columns of a table are found by name;
    the answers, with the probability of every class, are appended to its rows.

    Args:
        run: A run folder or a model file.
        paths: Image files and folders, a table of features (.csv, .tsv, .parquet), or .npz files with features [N, F]
            or uint8 images.
        algorithm: The file of your own method. It is executed, so name only files that you trust.
        inputs_array: The array of an .npz file to classify.
        vectors: The .npy file with a vector for each row of the table, if the model was trained with one.
        out: Write the rows to this .csv, .tsv or .parquet file instead of printing them.
        device: Such as cpu or cuda:0; by default a GPU if there is one.
        precision: Number format of the network; by default that which the run stated, or else that of the device.
        form: Table, CSV or JSON.

    """
    model = load(run, device=pick_device(device), precision=precision, algorithm=algorithm)
    if model.expected_accuracy:
        note(f"expected accuracy on a new domain: {model.expected_accuracy}")
    require_table_file(out, paths)
    tables, arrays, images = _by_kind(find_images(paths), of_features=len(model.spec.shape) == 1)
    if tables:
        show_table(predict_table(model, tables[0], vectors), form, out)
        return 0
    table = [row for file in arrays for row in _array_rows(model, file, inputs_array)]
    bad = len(images)
    for start in range(0, len(images), _AT_ONCE):
        found = _image_rows(model, images[start : start + _AT_ONCE])
        table += found
        bad -= len(found)
    if table and out:
        write_table(rows_table(table), out)
    elif table:
        print_rows(table, form)
    return 2 if bad else 0


def _by_kind(files: list[Path], *, of_features: bool) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the tables, the arrays and the images; only one of these may be named, and a model must take it."""
    kinds: tuple[list[Path], list[Path], list[Path]] = [], [], []
    for file in files:
        suffix = file.suffix.lower()
        kinds[0 if suffix in SUFFIXES else 1 if suffix == ".npz" else 2].append(file)
    tables, _, images = kinds
    if sum(map(bool, kinds)) > 1 or len(tables) > 1:
        raise MessiError(
            "Tables, images and .npz files give results with different columns; predict each table, the images and the "
            "arrays with a command of their own."
        )
    if tables and not of_features:
        raise MessiError("This model takes images, not tables of features; name images, folders or .npz files.")
    if images and of_features:
        raise MessiError(
            f"This model takes features, but {images[0]} is neither a table ({', '.join(SUFFIXES)}) nor an .npz file."
        )
    return kinds


def _image_rows(model: Model, files: list[Path]) -> list[Row]:
    """Return a row for every image that can be read, and report the others."""
    read, bad = read_all(model, files)
    for error in bad:
        note(f"messi: {error}", style="red")
    return rows([{"image": str(file)} for file in read], model.predict(list(read.values()))) if read else []


def _array_rows(model: Model, file: Path, name: str) -> list[Row]:
    inputs = read_inputs(file, name)
    wanted, given = (len(model.spec.columns),) if model.spec.columns else model.spec.shape, tuple(inputs.shape[1:])
    if (given != wanted) if len(wanted) == 1 or len(given) == 1 else (given[0] != wanted[0]):
        raise MessiError(
            f"'{name}' in {file} must contain {_kind(wanted)}, like the model's training data, but has {_kind(given)}."
        )
    return rows([{"file": str(file), "row": index} for index in range(len(inputs))], model.predict(inputs))


def _kind(shape: tuple[int, ...]) -> str:
    return f"rows of {shape[0]} features" if len(shape) == 1 else f"uint8 images of {shape[0]} channels"


def find_images(paths: tuple[Path, ...]) -> list[Path]:
    """Return the named files and the image files in the named folders."""
    if not paths:
        raise MessiError("There is nothing to predict; name at least one image, folder, table or .npz file.")
    files = []
    for path in paths:
        if path.is_dir():
            found = sorted(_images_below(path))
            if not found:
                raise MessiError(f"The folder {path} contains no images; name image files or a folder with images.")
            files += found
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def _images_below(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the image files in a folder and below; links are followed, as in training, unless they lead back up."""
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
    """Return the images that can be read, and the errors of those that cannot."""

    def attempt(file: Path) -> Tensor | MessiError:
        try:
            return model.read(file)
        except MessiError as error:
            return error

    with worker_threads(os.cpu_count() or 1) as threads:
        found = dict(zip(files, threads.map(attempt, files), strict=True))
    read = {file: picture for file, picture in found.items() if isinstance(picture, Tensor)}
    return read, [error for error in found.values() if isinstance(error, MessiError)]


def rows(inputs: list[Row], answers: Answers) -> list[Row]:
    """Return one row per input, which begins with the columns that identify it."""
    table = []
    for index, (name, label) in enumerate(zip(inputs, answers.labels, strict=True)):
        row: Row = {**name, "class": label, "probability": float(answers.probabilities[index].max())}
        if answers.experts is not None:
            row |= {f"expert{m}": weight for m, weight in enumerate(answers.experts[index].tolist(), start=1)}
        table.append(row)
    return table
