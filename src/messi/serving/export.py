"""Export: a trained model as one file that runs without messi, compared with the model before it is kept."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from messi.core.errors import MessiError
from messi.core.files import replace_atomically, write_text
from messi.evaluation.model import load
from messi.serving.export_card import card
from messi.serving.export_facts import Facts
from messi.serving.export_network import ExportedNetwork, expected_outputs
from messi.serving.export_onnx import Onnx
from messi.serving.export_torch import TorchExport

ExportFormat = Literal["onnx", "torch"]
TOLERANCE = 1e-4
"""The largest difference of a probability between the file and the model."""

Run = Callable[[Tensor], Sequence[Tensor]]


class Format(Protocol):
    """How a traced network becomes a file."""

    suffix: str

    def require(self) -> None:
        """Raise if a package is missing."""

    def write(self, program: ExportedProgram, facts: Facts, path: Path) -> None:
        """Write the file with what is known of the model."""

    def open(self, path: Path) -> Run:
        """Return the network in a file as a function of a batch."""


FORMATS: dict[ExportFormat, Format] = {"onnx": Onnx(), "torch": TorchExport()}


@dataclass(frozen=True)
class Exported:
    """The files of an export."""

    path: Path
    card: Path
    input: str
    """The name of the input."""
    difference: float
    """The largest difference of a probability between the file and the model, on the images or rows compared."""


def export(
    run: str | Path,
    *,
    to: ExportFormat = "onnx",
    out: str | Path | None = None,
    licence: str | None = None,
    algorithm: str | Path | None = None,
) -> Exported:
    """Write a model as one file that takes raw images or features, with a model card next to it.

    The file is compared with the model, and removed if the two differ.

    Args:
        run: the run folder or the model file.
        to: "onnx" for ONNX Runtime and others, "torch" for ``torch.export.load``.
        out: the file; by default one in the current folder that is named after the run.
        licence: the licence of the model; by default, the licences of its parts are listed.
        algorithm: the file with the method if it is your own.

    """
    run, form = Path(run), FORMATS[to]
    path = Path(out) if out else Path(f"{_name(run)}{form.suffix}")
    beside = path.with_suffix(".md")
    _require_new(path, beside)
    form.require()
    model = load(run, precision="float32", algorithm=algorithm)
    facts = Facts.of(run, model, licence)
    difference = 0.0

    def write(temporary: Path) -> None:
        nonlocal difference
        with _explained(facts):
            form.write(_traced(facts), facts, temporary)
            difference = _compared(facts, form.open(temporary), path)

    replace_atomically(path, write)
    write_text(beside, card(facts, to, path.name))
    return Exported(path, beside, facts.input.name, difference)


def _name(run: Path) -> str:
    """Return the name of a run; that of a model file is often the same for all, so its folder counts."""
    place = run.resolve()
    return place.name if place.is_dir() else f"{place.parent.name}-{place.stem}"


def _require_new(*paths: Path) -> None:
    for path in paths:
        if path.exists() or path.is_symlink():
            raise MessiError(f"{path} exists already; remove it, or name another file with --out.")
        if not path.parent.is_dir():
            raise MessiError(f"There is no folder {path.parent} for {path.name}; create it, or choose another --out.")


@contextmanager
def _explained(facts: Facts) -> Iterator[None]:
    """Turn any failure of the exporters, which may raise anything for a user's own method, into one sentence."""
    try:
        yield
    except (MessiError, OSError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise MessiError(
            f"The method '{facts.method}' with the backbone '{facts.backbone}' cannot be exported "
            f"({type(error).__name__}: {reason}). A method's predict must not depend on the values of tensors or on "
            "the number of inputs: use inputs.shape[0] instead of len(inputs)."
        ) from error


def _traced(facts: Facts) -> ExportedProgram:
    """Trace the network for any number and size of inputs."""
    dynamic = {axis: Dim(name) for axis, name in facts.input.dynamic.items()}
    network = ExportedNetwork(facts.model).eval()
    with torch.no_grad():
        return torch.export.export(network, (facts.input.example,), dynamic_shapes=(dynamic,), strict=False)


def _compared(facts: Facts, run: Run, path: Path) -> float:
    """Return the largest difference between the probabilities of a file and a model; raise if it is too large."""
    differences = []
    for probe in facts.input.probes():
        for found, wanted in zip(run(probe), expected_outputs(facts.model, probe), strict=True):
            differences.append(float((found - wanted).abs().max()) if found.shape == wanted.shape else math.inf)
    if not all(difference <= TOLERANCE for difference in differences):  # NaN is no small difference
        raise MessiError(
            f"{path} was not written: its answers would differ from the model's by {max(differences):.2g}, more than "
            f"{TOLERANCE:g}. Try another version of torch or onnxruntime, and report this."
        )
    return max(differences)
