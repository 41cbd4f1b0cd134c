"""Preprocessing inside an exported network gives the same bits as messi's own."""

import math

import pytest
import torch
from torch.nn import functional

from messi.core.batch import Column, InputSpec
from messi.data.features import encode, fit_spec
from messi.data.images import Images
from messi.data.preprocess import prepare
from messi.serving.export_inputs import FeatureInput, ImageInput, resize_lines, resize_weights

from .saved import photos

SIDES = (1, 2, 7, 31, 48, 97, 224, 227, 320, 449, 1501)


@pytest.mark.parametrize("size", [(28, 28), (224, 224), (48, 40)])
def test_images_are_resized_as_by_torch_bit_by_bit(size: tuple[int, int]) -> None:
    """Larger and smaller, odd sizes, one pixel; noise has no two equal neighbours, and white is at the limit."""
    generator = torch.Generator().manual_seed(0)
    for turn, height in enumerate(SIDES):
        for width in SIDES[turn % 3 :: 3]:
            noise = torch.randint(0, 256, (1, 2, height, width), dtype=torch.uint8, generator=generator)
            for image in (noise, torch.full_like(noise, 255)):
                wanted = functional.interpolate(image, size, mode="bilinear", antialias=True)
                found = resize_lines(resize_lines(image.float(), size[1]).mT, size[0]).mT
                assert found.equal(wanted.float()), (height, width)


def test_weights_are_those_of_the_triangle_filter_in_float64() -> None:
    """The definition: a triangle as wide as two pixels of the smaller image, cut at the border, with sum 1."""
    for before, after in ((5, 9), (9, 5), (300, 224), (1, 4), (4, 1), (3000, 224)):
        weights, unit = resize_weights(before, after)
        scale = before / after
        centres = (torch.arange(after, dtype=torch.float64) + 0.5) * scale
        distances = (torch.arange(before, dtype=torch.float64) + 0.5 - centres[:, None]).abs()
        triangle = (1 - distances / max(scale, 1)).clamp(min=0)
        wanted = triangle / triangle.sum(1, keepdim=True)
        assert (weights / unit - wanted).abs().max() <= 0.5 / unit + 1e-12
        assert 2**14 - 1 <= weights.max() < 2**15 or unit == 2**22


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_images_are_prepared_as_for_a_prediction(channels: int) -> None:
    spec = InputSpec((channels, 30, 24), mean=(0.4, 0.5, 0.3)[:channels], std=(0.2, 0.3, 0.25)[:channels])
    for size in ((30, 24), (24, 30), (61, 47), (1, 1)):
        (image,) = photos([size], channels=channels)
        assert ImageInput(spec)(image[None]).equal(prepare(Images.pack([image]), spec))


def test_features_are_encoded_as_for_a_prediction() -> None:
    """Numbers near 1e9 that differ in the last digits, missing values, categories seen, unseen and missing."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(40, 5, dtype=torch.float64, generator=generator)
    values[:, 1] += 1e9
    values[::4, 1] = math.nan
    values[:, 2] = torch.arange(40) % 3
    values[:, 3] = torch.arange(40) % 2
    values[::5, 3] = math.nan
    values[:, 4] = 7
    columns = (Column("a"), Column("when"), Column("kind", ("x", "y", "z")), Column("side", ("l", "r")), Column("c"))
    spec = fit_spec(values, torch.arange(30), columns, "standardise")
    values[35, 2], values[36, 2], values[37, 0] = -1, math.nan, 1e300
    found = FeatureInput(spec)(values)
    assert found.equal(encode(values, spec, spec.columns))
    assert found[35, 3:6].tolist() == [0, 0, 0]
    assert found.shape == (40, 1 + 2 + 3 + 3 + 1)
    assert found.isfinite().all()


@pytest.mark.parametrize("scaling", ["standardise", "none"])
def test_rows_without_names_are_encoded_as_for_a_prediction(scaling: str) -> None:
    values = torch.randn(20, 4) * 5 + 3
    spec = fit_spec(values, torch.arange(15), (), scaling)  # type: ignore[arg-type]
    if scaling == "standardise":
        values[16, 2] = math.nan
    assert FeatureInput(spec)(values).equal(encode(values, spec))
