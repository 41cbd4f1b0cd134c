"""The network that is exported: raw inputs to probabilities, in operations that every runtime has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from messi.core.batch import InputSpec
from messi.data.features import Rows
from messi.evaluation.model import Model
from messi.serving.export_inputs import FeatureInput, ImageInput, raw_columns

Outputs = tuple[Tensor, ...]
"""The probabilities [N, classes], and the router weights [N, experts] if the method has a router."""


class ExportedNetwork(nn.Module):
    """Preprocessing, method and softmax of a model as one module."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.algorithm = model.algorithm
        self.prepare = ImageInput(model.spec) if len(model.spec.shape) == 3 else FeatureInput(model.spec)

    def forward(self, inputs: Tensor) -> Outputs:
        """Return the outputs for uint8 images [N, C, H, W] or raw features [N, C]."""
        prediction = self.algorithm.predict(self.prepare(inputs))
        probabilities = prediction.logits.softmax(-1)
        return (probabilities,) if prediction.routing is None else (probabilities, prediction.routing)


def expected_outputs(model: Model, inputs: Tensor) -> Outputs:
    """Return what messi itself answers to the inputs of an exported network."""
    answers = model.predict(inputs if len(model.spec.shape) == 3 else Rows(inputs, model.spec.columns))
    return (answers.probabilities,) if answers.experts is None else (answers.probabilities, answers.experts)


@dataclass(frozen=True)
class NetworkInput:
    """The input of an exported network."""

    name: str
    """The name that a runtime knows it by."""
    dynamic: Mapping[int, str]
    """The axes whose size is free, with their names."""
    spec: InputSpec

    @classmethod
    def of(cls, spec: InputSpec) -> "NetworkInput":
        """Return the input for images or features."""
        if len(spec.shape) == 1:
            return cls("features", {0: "batch"}, spec)
        return cls("images", {0: "batch", 2: "height", 3: "width"}, spec)

    @property
    def dtype(self) -> torch.dtype:
        """The type of its values: tables may contain numbers of many digits, such as dates, but embeddings do not."""
        if len(self.spec.shape) == 3:
            return torch.uint8
        return torch.float64 if self.spec.columns else torch.float32

    @property
    def example(self) -> Tensor:
        """A batch to trace the network with."""
        return next(self.probes())

    def probes(self) -> Iterator[Tensor]:
        """Yield batches to compare a file with the model.

        Images are larger than the network's, smaller, as large and one pixel. Some features are missing or unseen.
        """
        generator = torch.Generator().manual_seed(0)
        if len(self.spec.shape) == 1:
            yield from (self._rows(number, generator) for number in (50, 1))
            return
        channels, height, width = self.spec.shape
        sizes = ((3 * height // 2 + 1, 2 * width + 3), (height // 2, width // 3), (height, width), (1, 1))
        for number, size in zip((5, 2, 1, 1), sizes, strict=True):
            yield torch.randint(0, 256, (number, channels, *size), dtype=torch.uint8, generator=generator)

    def _rows(self, number: int, generator: torch.Generator) -> Tensor:
        spec, features = self.spec, FeatureInput(self.spec)
        columns = raw_columns(spec)
        rows = torch.randn(number, len(columns), dtype=torch.float64, generator=generator)
        if not spec.mean:
            return rows.to(self.dtype)
        for place, (column, feature) in enumerate(zip(columns, features.first, strict=True)):
            if column.categories is None:
                rows[:, place] = rows[:, place] * spec.std[feature] + spec.mean[feature]
            else:
                rows[:, place] = torch.randint(-1, len(column.categories), (number,), generator=generator).double()
        rows[torch.rand(rows.shape, generator=generator) < 0.1] = torch.nan
        return rows.to(self.dtype)
