"""The batch augmentation against torchvision, image by image with the same parameters, and its distribution."""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from messi.core.batch import InputSpec
from messi.data import augment as ours
from messi.data import augment_kernels
from messi.data.images import Images
from messi.data.preprocess import prepare

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WHOLE = InputSpec(shape=(3, 32, 32), mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255))
"""Normalises to whole numbers from 0 to 255."""
Implementation = Callable[[Images, ours.Parameters, tuple[int, int]], Tensor]


def by_torch(images: Images, drawn: ours.Parameters, size: tuple[int, int]) -> Tensor:
    return ours.augment(images, drawn, dataclasses.replace(WHOLE, shape=(3, *size))).round()  # normalising also rounds


def by_kernels(images: Images, drawn: ours.Parameters, size: tuple[int, int]) -> Tensor:
    device, spec = torch.device(DEVICE), dataclasses.replace(WHOLE, shape=(3, *size))
    return augment_kernels.augment(images.to(device), drawn.map(lambda values: values.to(device)), spec).cpu().round()


IMPLEMENTATIONS = pytest.mark.parametrize("implementation", [by_torch, by_kernels], ids=["torch", "kernels"])


def unchanged(images: Images) -> ours.Parameters:
    """Return parameters that change nothing but the size."""
    number = len(images)
    return ours.Parameters(
        boxes=torch.cat([torch.zeros_like(images.sizes), images.sizes], 1).int(),
        flip=torch.zeros(number, dtype=torch.bool),
        factors=torch.tensor([[1.0, 1.0, 1.0, 0.0]]).repeat(number, 1),
        order=torch.tensor([[0, 1, 2, 3]]).repeat(number, 1),
        gray=torch.zeros(number, dtype=torch.bool),
    )


# Small enough for Triton's interpreter; test_gpu.py uses larger images.
SIZES = [(40, 50), (64, 31), (48, 48), (80, 60), (1, 1), (3, 90), (30, 30)]


def pictures(seed: int = 0) -> list[Tensor]:
    """Smooth colours with some noise, like photographs, and pure noise."""
    stream = torch.Generator().manual_seed(seed)
    images = []
    for index, size in enumerate(SIZES):
        coarse = torch.rand(3, 5, 5, generator=stream) * 255
        smooth = functional.resize(coarse, list(size), antialias=True)
        noise = torch.rand(3, *size, generator=stream) * 255
        images.append((smooth if index % 2 else 0.5 * smooth + 0.5 * noise).clamp(0, 255).to(torch.uint8))
    return images


def assert_within_one_level(actual: Tensor, expected: Tensor) -> None:
    difference = (actual - expected.float()).abs()
    assert difference.max() <= 1
    assert difference.mean() < 0.25, "rounding apart, the values are the same"


@IMPLEMENTATIONS
@pytest.mark.parametrize("size", [(56, 56), (28, 28), (17, 60)])
def test_crop_resize_and_flip_match_torchvision(size: tuple[int, int], implementation: Implementation) -> None:
    images = pictures()
    packed = Images.pack(images)
    boxes = ours.draw_boxes(packed.sizes, torch.Generator().manual_seed(1))
    flip = torch.arange(len(images)) % 2 == 0
    result = implementation(packed, dataclasses.replace(unchanged(packed), boxes=boxes, flip=flip), size)
    for image, box, mirrored, got in zip(images, boxes.tolist(), flip, result, strict=True):
        expected = functional.resized_crop(image, *box, list(size), antialias=True)
        assert_within_one_level(got, functional.horizontal_flip(expected) if mirrored else expected)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_torch_and_kernels_resize_images_with_any_number_of_channels_alike(channels: int) -> None:
    images = Images.pack([image[:channels] for image in pictures()])
    spec = InputSpec(shape=(channels, 20, 30), mean=(0.1,) * channels, std=(0.5,) * channels)
    whole = unchanged(images)
    device = torch.device(DEVICE)
    got = augment_kernels.resize(images.to(device), whole.boxes.to(device), whole.flip.to(device), spec).cpu()
    assert (got - prepare(images, spec)).abs().max() <= 1.001 / 255 / 0.5


CHANGES = (
    ("brightness", functional.adjust_brightness, 0.7, 1.3),
    ("contrast", functional.adjust_contrast, 0.7, 1.3),
    ("saturation", functional.adjust_saturation, 0.7, 1.3),
    ("hue", functional.adjust_hue, -0.3, 0.3),
)


@IMPLEMENTATIONS
@pytest.mark.parametrize("number", range(4), ids=[name for name, *_ in CHANGES])
def test_every_colour_change_matches_torchvision(implementation: Implementation, number: int) -> None:
    _, theirs, low, high = CHANGES[number]
    for seed in range(3):
        image = functional.resize(pictures(seed)[seed + 1], [32, 32], antialias=True)
        packed = Images.pack([image] * 5)
        drawn = unchanged(packed)
        drawn.factors[:, number] = torch.linspace(low, high, 5)
        for factor, got in zip(drawn.factors[:, number].tolist(), implementation(packed, drawn, (32, 32)), strict=True):
            assert_within_one_level(got, theirs(image, factor))


@IMPLEMENTATIONS
def test_hue_of_grey_black_white_and_pure_colours_matches_torchvision(implementation: Implementation) -> None:
    levels = torch.tensor([0, 1, 128, 255], dtype=torch.uint8)
    image = torch.cartesian_prod(levels, levels, levels).T.reshape(3, 8, 8)
    shifts = (-0.3, -0.1, 0.0, 0.2, 0.3)
    packed = Images.pack([image] * len(shifts))
    drawn = unchanged(packed)
    drawn.factors[:, 3] = torch.tensor(shifts)
    for shift, got in zip(shifts, implementation(packed, drawn, (8, 8)), strict=True):
        assert_within_one_level(got, functional.adjust_hue(image, shift))


@IMPLEMENTATIONS
def test_greyscale_matches_torchvision(implementation: Implementation) -> None:
    packed = Images.pack([functional.resize(image, [32, 32], antialias=True) for image in pictures()])
    drawn = dataclasses.replace(unchanged(packed), gray=torch.arange(len(packed)) % 2 == 0)
    for image, gray, got in zip(packed, drawn.gray, implementation(packed, drawn, (32, 32)), strict=True):
        assert_within_one_level(got, functional.rgb_to_grayscale(image, 3) if gray else image)


@IMPLEMENTATIONS
def test_the_whole_chain_matches_torchvision_in_the_order_of_each_image(implementation: Implementation) -> None:
    """Each of five steps rounds once more, so the chain may differ by a few levels, but hardly on average."""
    images = pictures()
    packed = Images.pack(images)
    drawn = ours.draw_parameters(packed.sizes, torch.Generator().manual_seed(3))
    result = implementation(packed, drawn, (32, 32))
    for i, image in enumerate(images):
        expected = functional.resized_crop(image, *drawn.boxes[i].tolist(), [32, 32], antialias=True)
        expected = functional.horizontal_flip(expected) if drawn.flip[i] else expected
        for number in drawn.order[i].tolist():
            expected = CHANGES[number][1](expected, drawn.factors[i, number].item())
        expected = functional.rgb_to_grayscale(expected, 3) if drawn.gray[i] else expected
        difference = (result[i] - expected.float()).abs()
        assert difference.mean() < 1
        assert difference.max() <= 8


@IMPLEMENTATIONS
def test_a_batch_equals_its_images_one_by_one(implementation: Implementation) -> None:
    images = pictures()
    packed = Images.pack(images)
    drawn = ours.draw_parameters(packed.sizes, torch.Generator().manual_seed(4))
    together = implementation(packed, drawn, (32, 32))
    for i in range(len(images)):
        alone = implementation(packed.select(slice(i, i + 1)), drawn[i : i + 1], (32, 32))
        assert torch.equal(alone[0], together[i])


@pytest.mark.parametrize("size", [(200, 300), (300, 200), (224, 224), (50, 400)])
def test_crop_boxes_have_the_distribution_of_torchvision(size: tuple[int, int]) -> None:
    """Compare means and spreads of 4,000 draws each, within 5 standard errors of their difference."""
    number = 4000
    drawn = ours.draw_boxes(torch.tensor([size]).expand(number, 2), torch.Generator().manual_seed(0)).double()
    transform, blank = v2.RandomResizedCrop(224, scale=(0.7, 1.0)), [torch.empty(3, *size)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = [transform.make_params(blank) for _ in range(number)]
    theirs = torch.tensor([[p["top"], p["left"], p["height"], p["width"]] for p in made], dtype=torch.float64)
    for power in (1, 2):
        a, b = drawn**power, theirs**power
        error = ((a.var(0) + b.var(0)) / number).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() <= 5 * error + 1e-9).all()
    assert (drawn[:, :2] >= 0).all()
    assert (drawn[:, :2] + drawn[:, 2:] <= torch.tensor(size)).all()


def test_the_other_parameters_have_the_stated_distribution() -> None:
    number = 20_000
    drawn = ours.draw_parameters(torch.full((number, 2), 100), torch.Generator().manual_seed(0))
    assert drawn.flip.double().mean().item() == pytest.approx(0.5, abs=0.02)
    assert drawn.gray.double().mean().item() == pytest.approx(0.1, abs=0.01)
    low, high = drawn.factors.amin(0), drawn.factors.amax(0)
    torch.testing.assert_close(low, torch.tensor([0.7, 0.7, 0.7, -0.3]), rtol=0, atol=1e-3)
    torch.testing.assert_close(high, torch.tensor([1.3, 1.3, 1.3, 0.3]), rtol=0, atol=1e-3)
    assert (drawn.factors.std(0) - 0.6 / math.sqrt(12)).abs().max() < 5e-3
    _, counts = drawn.order.unique(dim=0, return_counts=True)
    assert len(counts) == 24
    assert (counts.double() / number - 1 / 24).abs().max() < 0.01


def test_threads_split_a_batch_and_change_nothing() -> None:
    packed = Images.pack(pictures())
    drawn = ours.draw_parameters(packed.sizes, torch.Generator().manual_seed(5))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(ours.augment(packed, drawn, WHOLE))
            assert torch.get_num_threads() == threads, "the setting of the threads does not affect the caller"
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)
