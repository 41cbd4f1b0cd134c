"""Export to ONNX: one file with weights and metadata, for ONNX Runtime and other runtimes."""

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from messi.core.errors import MessiError
from messi.core.text import bytes_text
from messi.serving.export_facts import Facts

_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
_OPSET = 18
_LARGEST = 2**31 - 2**24
"""The largest file in the format of ONNX has 2 GiB; a part of it is for the graph."""


class Onnx:
    """ONNX, opset 18."""

    suffix = ".onnx"

    def require(self) -> None:
        """Raise if a package is missing."""
        if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
            raise MessiError(
                f"Export to ONNX needs {', '.join(missing)}, which is not installed; type: "
                "pip install 'messi-dg[export]'."
            )

    def write(self, program: ExportedProgram, facts: Facts, path: Path) -> None:
        """Write graph, weights and metadata as one file."""
        with _quiet():
            converted: Any = torch.onnx.export(
                program,
                (),
                input_names=[facts.input.name],
                output_names=[*facts.outputs],
                dynamic_shapes=({axis: Dim(name) for axis, name in facts.input.dynamic.items()},),
                opset_version=_OPSET,
                dynamo=True,
                verbose=False,
            )
            size = sum(value.const_value.nbytes for value in converted.model.graph.initializers.values())
            if size > _LARGEST:
                raise MessiError(
                    f"The model has {bytes_text(size)} of weights, but an ONNX file is limited to 2 GiB; export it "
                    "with --to torch."
                )
            converted.model.metadata_props.update(facts.metadata())
            converted.model.doc_string = facts.summary
            converted.save(path, external_data=False)

    def open(self, path: Path) -> Callable[[Tensor], Sequence[Tensor]]:
        """Open a file in ONNX Runtime."""
        import onnxruntime  # noqa: PLC0415 (an optional package)

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (name,) = (one.name for one in session.get_inputs())
        return lambda inputs: [torch.from_numpy(found) for found in session.run(None, {name: inputs.numpy()})]


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the notes of the exporter, which are about its own code."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
