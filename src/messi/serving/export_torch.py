"""Export to a program of ``torch.export``: for Python and C++ without messi."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram

from messi.serving.export_facts import Facts

METADATA = "metadata.json"
"""The extra file with what is known of the model."""


class TorchExport:
    """An archive that ``torch.export.load`` reads."""

    suffix = ".pt2"

    def require(self) -> None:
        """Do nothing: torch is installed."""

    def write(self, program: ExportedProgram, facts: Facts, path: Path) -> None:
        """Write the archive."""
        torch.export.save(program, path, extra_files={METADATA: json.dumps(facts.metadata())})

    def open(self, path: Path) -> Callable[[Tensor], Sequence[Tensor]]:
        """Load an archive."""
        module = torch.export.load(path).module()

        def run(inputs: Tensor) -> Sequence[Tensor]:
            with torch.inference_mode():
                found: Sequence[Tensor] = module(inputs)
            return found

        return run
