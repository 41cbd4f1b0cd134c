"""The network that is exported: raw inputs to probabilities, in float32 and in operations that every runtime has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from messi.core.batch import InputSpec
from messi.data.preprocess import normalise
from messi.evaluation.model import Model


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
    def example(self) -> Tensor:
        """A batch to trace the network with; no two of its sizes are equal, or the trace would take them for one."""
        return next(self.probes())

    def probes(self) -> Iterator[Tensor]:
        """Yield batches to compare a file with the model: for images, larger, smaller, as large, and one pixel."""
        generator = torch.Generator().manual_seed(0)
        if len(self.spec.shape) == 1:
            yield from (torch.randn(size, *self.spec.shape, generator=generator) for size in (5, 1))
            return
        channels, height, width = self.spec.shape
        sizes = ((3 * height // 2 + 1, 2 * width + 3), (height // 2, width // 3), (height, width), (1, 1))
        for number, size in zip((5, 2, 1, 1), sizes, strict=True):
            yield torch.randint(0, 256, (number, channels, *size), dtype=torch.uint8, generator=generator)


class ExportedNetwork(nn.Module):
    """Preprocessing, method and softmax of a model as one module."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.algorithm = model.algorithm
        self.prepare = ImageInput(model.spec) if len(model.spec.shape) == 3 else nn.Identity()

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the probabilities [N, classes], and the router weights [N, experts] if the method has a router."""
        output = self.algorithm.predict(self.prepare(inputs))
        probabilities = output.logits.softmax(-1)
        return (probabilities,) if output.routing is None else (probabilities, output.routing)


class ImageInput(nn.Module):
    """Images of any size to the input of the encoder, as ``data.preprocess.prepare`` does it on a CPU.

    torch resizes uint8 images in whole numbers: the weights of the antialiased filter are rounded to 15 bits, and the
    pixels to whole values after each of the two passes. Without the same rounding, a fifth of the pixels differ by 1.
    ONNX's own operator for it (Resize with antialias) is no alternative: at the border of an image, ONNX Runtime's
    result differs from torch's by up to 7.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        _, self._height, self._width = spec.shape
        for name, values in (("mean", spec.mean), ("std", spec.std)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Resize and normalise uint8 images: [N, C, H, W] -> [N, C, *size]."""
        rows = resize_lines(images.float(), self._width)
        return normalise(resize_lines(rows.mT, self._height).mT, self.mean, self.std)


def resize_lines(pixels: Tensor, after: int) -> Tensor:
    """Resize the last side of images with whole values from 0 to 255, and round: [..., before] -> [..., after]."""
    weights, unit = resize_weights(pixels.shape[-1], after)
    # Products of the upper and the lower 8 bits, summed in float32, are exact; those of 15 bits would not be.
    upper, lower = (pixels @ part.float().mT for part in (weights // 256, weights % 256))
    sums = 256 * upper.long() + lower.long()
    return ((sums + unit // 2) // unit).clamp(0, 255).float()


def resize_weights(before: int, after: int) -> tuple[Tensor, Tensor]:
    """Return torch's weights to resize one side of uint8 images, bilinear and antialiased.

    Returns:
        [after, before] the weights as multiples of a power of 2, and that power: the largest with which they have 15
        bits. Both are computed in whole numbers, and so are exact.

    """
    centres, positions = 2 * torch.arange(after)[:, None] + 1, 2 * torch.arange(before) + 1
    reach = 2 * torch.maximum(torch.full((), before), torch.full((), after))
    heights = (reach - (positions * after - centres * before).abs()).clamp(min=0)
    sums = heights.sum(1, keepdim=True)
    powers = 2.0 ** torch.arange(23)
    unit = torch.where((heights / sums).max() * powers < 2**15 - 0.5, powers, 1).max().long()
    return (2 * heights * unit + sums) // (2 * sums), unit
