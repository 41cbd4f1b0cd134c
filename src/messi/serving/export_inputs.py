"""Preprocessing inside an exported network: from raw images or features to the input of the encoder."""

from itertools import accumulate

import torch
from torch import Tensor, nn

from messi.core.batch import Column, InputSpec
from messi.data.preprocess import normalise


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


def raw_columns(spec: InputSpec) -> tuple[Column, ...]:
    """Return the columns of a row of raw features; numbers without names are numbered."""
    means = spec.mean or (0.0,) * spec.shape[0]
    return spec.columns or tuple(Column(str(place), fill=mean) for place, mean in enumerate(means))


class FeatureInput(nn.Module):
    """Raw features to the input of the encoder, as ``data.features.encode`` does it.

    A category is given as its index among the names of its column; NaN is a missing value, and any other number, such
    as -1, an unseen category.
    """

    source: Tensor
    """[F] the raw column of each feature."""
    fill: Tensor
    """[F] replaces a missing number."""
    code: Tensor
    """[F] the category that a feature is 1 for."""
    is_number: Tensor
    is_indicator: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        columns = raw_columns(spec)
        self.first = [0, *accumulate(column.width for column in columns)][:-1]
        """Where the features of each raw column begin."""
        features = [
            (place, column.fill, code, column.categories is None and code == 0, code == column.width - column.indicator)
            for place, column in enumerate(columns)
            for code in range(column.width)
        ]
        names = ("source", "fill", "code", "is_number", "is_indicator")
        kinds = (torch.long, torch.float64, torch.float64, torch.bool, torch.bool)
        for name, values, kind in zip(names, zip(*features, strict=True), kinds, strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=kind))
        for name, values in (("mean", spec.mean), ("std", spec.std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))
        self._as_they_are = not spec.mean

    def forward(self, rows: Tensor) -> Tensor:
        """Impute, encode and standardise: [N, C] -> [N, F]."""
        if self._as_they_are:
            return rows.float()
        cells = rows.double()[:, self.source]
        missing = cells.isnan()
        numbers = torch.where(missing, self.fill, cells)
        flags = torch.where(self.is_indicator, missing.double(), (cells == self.code).double())
        features = (torch.where(self.is_number, numbers, flags) - self.mean) / self.std
        largest = torch.finfo(torch.float32).max
        return features.clamp(-largest, largest).float()
