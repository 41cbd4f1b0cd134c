"""The batch augmentation against torchvision, image by image with the same parameters, and its distribution."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from messi.data import augment as ours
from messi.data.resample import by_products, one_by_one, pad_together

Resize = Callable[[Tensor, Tensor, tuple[int, int], Tensor], Tensor]

SIZES = [(40, 50), (64, 31), (224, 224), (320, 200), (1, 1), (3, 320), (100, 100)]


def pictures(seed: int = 0) -> list[Tensor]:
    """Smooth colours with some noise, as photographs have, and pure noise, which they have not."""
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


@pytest.mark.parametrize("crop_and_resize", [by_products, one_by_one])
@pytest.mark.parametrize("size", [(224, 224), (28, 28), (17, 60)])
def test_crop_resize_and_flip_are_torchvisions(size: tuple[int, int], crop_and_resize: Resize) -> None:
    images = pictures()
    batch, sizes = pad_together(images)
    boxes = ours.draw_boxes(sizes, torch.Generator().manual_seed(1))
    flip = torch.arange(len(images)) % 2 == 0
    result = crop_and_resize(batch, boxes, size, flip)
    for image, box, mirrored, got in zip(images, boxes.int().tolist(), flip, result, strict=True):
        expected = functional.resized_crop(image, *box, list(size), antialias=True)
        assert_within_one_level(got, functional.horizontal_flip(expected) if mirrored else expected)


@pytest.mark.parametrize(
    ("change", "theirs", "low", "high"),
    [
        (ours.brightness, functional.adjust_brightness, 0.7, 1.3),
        (ours.contrast, functional.adjust_contrast, 0.7, 1.3),
        (ours.saturation, functional.adjust_saturation, 0.7, 1.3),
        (ours.hue, functional.adjust_hue, -0.3, 0.3),
    ],
)
def test_every_change_of_colour_is_torchvisions(
    change: Callable[[Tensor, Tensor], Tensor], theirs: Callable[[Tensor, float], Tensor], low: float, high: float
) -> None:
    for seed in range(3):
        image = pictures(seed)[seed + 1]
        factors = torch.linspace(low, high, 5)
        result = change(image.float().expand(5, -1, -1, -1).clone(), factors.view(-1, 1, 1, 1))
        for factor, got in zip(factors.tolist(), result, strict=True):
            assert_within_one_level(got, theirs(image, factor))


def test_hue_of_gray_black_white_and_pure_colours_is_torchvisions() -> None:
    levels = torch.tensor([0, 1, 128, 255], dtype=torch.uint8)
    image = torch.cartesian_prod(levels, levels, levels).T.reshape(3, 8, 8)
    for shift in (-0.3, -0.1, 0.0, 0.2, 0.3):
        got = ours.hue(image.float()[None], torch.tensor(shift).view(1, 1, 1, 1))[0]
        assert_within_one_level(got, functional.adjust_hue(image, shift))


def test_the_whole_chain_is_torchvisions_in_each_images_own_order() -> None:
    """Each of five steps rounds once more, so the chain may differ by a few levels, and hardly does on average."""
    images = pictures()
    batch, sizes = pad_together(images)
    drawn = ours.draw_parameters(sizes, torch.Generator().manual_seed(3))
    result = ours.augment(batch, drawn, (64, 64))
    theirs = (
        functional.adjust_brightness,
        functional.adjust_contrast,
        functional.adjust_saturation,
        functional.adjust_hue,
    )
    for i, image in enumerate(images):
        expected = functional.resized_crop(image, *drawn.boxes[i].int().tolist(), [64, 64], antialias=True)
        expected = functional.horizontal_flip(expected) if drawn.flip[i] else expected
        for number in drawn.order[i].tolist():
            expected = theirs[number](expected, drawn.factors[i, number].item())
        expected = functional.rgb_to_grayscale(expected, 3) if drawn.gray[i] else expected
        difference = (result[i] - expected.float()).abs()
        assert difference.mean() < 1
        assert difference.max() <= 8


def test_a_batch_is_its_images_one_by_one() -> None:
    images = pictures()
    batch, sizes = pad_together(images)
    drawn = ours.draw_parameters(sizes, torch.Generator().manual_seed(4))
    together = ours.augment(batch, drawn, (32, 32))
    for i, image in enumerate(images):
        fields = {name: value[i : i + 1] for name, value in vars(drawn).items()}
        alone = ours.augment(image[None], ours.Parameters(**fields), (32, 32))
        assert (alone[0] - together[i]).abs().max() <= 1, "sums of another length may round the other way"


@pytest.mark.parametrize("size", [(200, 300), (300, 200), (224, 224), (50, 400)])
def test_boxes_have_torchvisions_distribution(size: tuple[int, int]) -> None:
    """Means and spreads of 4,000 draws of either side; 5 standard errors of their difference."""
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
