import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from messi.core.errors import MessiError
from messi.data.datasets.colored_mnist import ColoredMNIST
from messi.data.datasets.common.digits import deal_digits, load_digits
from messi.data.datasets.rotated_mnist import RotatedMNIST
from messi.data.examples import Examples

ANGLES = (0, 15, 30, 45, 60, 75)
Save = Callable[[np.ndarray, np.ndarray], str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Return a function that saves images and digits in an .npz file of the usual layout."""

    def write(images: np.ndarray, digits: np.ndarray) -> str:
        path = tmp_path / "mnist.npz"
        np.savez(path, x_train=images[1:], y_train=digits[1:], x_test=images[:1], y_test=digits[:1])
        return str(path)

    return write


@pytest.fixture
def numbered(save: Save) -> str:
    """240 uniformly grey images with the values 1 to 240: the centre identifies an image under any rotation."""
    images = np.broadcast_to(np.arange(1, 241, dtype=np.uint8)[:, None, None], (240, 28, 28))
    return save(images, np.arange(240) % 10)


@pytest.fixture
def many(save: Save) -> str:
    """30,000 uniformly grey images."""
    return save(np.full((30_000, 28, 28), 200, np.uint8), np.random.default_rng(0).integers(0, 10, 30_000))


def pixels(examples: Examples) -> Tensor:
    result = torch.stack(list(examples.inputs))
    assert result.dtype == torch.uint8
    return result


def middles(examples: Examples) -> list[set[int]]:
    """Return the grey values in the centre of each domain's images."""
    middle = pixels(examples)[:, :, 14, 14].amax(1)
    return [set(middle[examples.domains == d].tolist()) for d in range(len(examples.domain_names))]


def turn(image: Tensor, angle: int) -> Tensor:
    """Rotate one image with Pillow."""
    turned = Image.fromarray(image.numpy()).rotate(angle, Image.Resampling.BILINEAR, fillcolor=0)
    return torch.from_numpy(np.array(turned))


@pytest.mark.parametrize(("data", "domains"), [(RotatedMNIST, 6), (ColoredMNIST, 3)])
def test_every_digit_is_in_only_one_domain(
    data: type[RotatedMNIST | ColoredMNIST], domains: int, numbered: str
) -> None:
    parts = middles(data(digits=numbered).load())
    assert [len(part) for part in parts] == [240 // domains] * domains
    assert set().union(*parts) == set(range(1, 241))


@pytest.mark.parametrize("data", [RotatedMNIST, ColoredMNIST])
def test_only_the_data_seed_decides_which_digits_a_domain_has(
    data: type[RotatedMNIST | ColoredMNIST], numbered: str
) -> None:
    first, again, other = (data(digits=numbered, data_seed=seed).load() for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert middles(first) == middles(again) != middles(other)


def test_the_rotated_digits_have_domainbeds_domains_classes_and_shape() -> None:
    examples = RotatedMNIST().load()
    assert examples.domain_names == ("0", "15", "30", "45", "60", "75")
    assert examples.classes == tuple("0123456789")
    assert pixels(examples).shape == (5000, 1, 28, 28)


def test_a_label_is_the_images_digit(numbered: str) -> None:
    examples = RotatedMNIST(digits=numbered).load()
    assert torch.equal(examples.labels, (pixels(examples)[:, 0, 14, 14].long() - 1) % 10)


def test_a_domain_is_rotated_counter_clockwise_by_its_angle(save: Save) -> None:
    """A bar from the centre to the right points to the angle; pixels limit the accuracy to one degree."""
    images = np.zeros((60, 28, 28), np.uint8)
    images[:, 13:15, 14:26] = 255
    examples = RotatedMNIST(digits=save(images, np.zeros(60, int))).load()
    up, right = 13.5 - torch.arange(28.0)[:, None], torch.arange(28.0) - 13.5
    for domain, angle in enumerate(ANGLES):
        chosen = pixels(examples)[examples.domains == domain]
        assert len(chosen) == 10
        image = chosen[0, 0].float()
        pointed = math.degrees(math.atan2((image * up).sum(), (image * right).sum()))
        assert abs(pointed - angle) < 1
        assert abs(image.sum() / (255 * 24) - 1) < 0.03, "a rotation keeps the content"


def test_the_rotated_pixels_match_those_of_pillow(save: Save) -> None:
    """DomainBed rotates with Pillow. The two round differently, by 1 at most; on the outermost rim they disagree."""
    images, digits = load_digits("embedded")
    middle = torch.nn.functional.pad(images[:, 1:-1, 1:-1], (1, 1, 1, 1))
    source = save(middle.numpy(), digits.numpy())
    examples = RotatedMNIST(digits=source).load()
    for domain, (upright, _) in enumerate(deal_digits(source, data_seed=0, environments=6)):
        expected = [turn(image, ANGLES[domain]) for image in upright[:, 0]]
        ours = pixels(examples)[examples.domains == domain, 0]
        assert (ours.int() - torch.stack(expected).int()).abs().max() <= 1


def test_colour_and_label_have_the_stated_probabilities(many: str) -> None:
    """With 10,000 examples per domain, a frequency is within 0.02 of its probability (4 standard errors)."""
    examples = ColoredMNIST(digits=many).load()
    assert examples.domain_names == ("+90%", "+80%", "-90%")
    color = pixels(examples).flatten(2).amax(-1).argmax(1)
    clean = ColoredMNIST(digits=many, label_noise=0).load()
    for domain, flip in enumerate((0.1, 0.2, 0.9)):
        chosen = examples.domains == domain
        assert abs((color != examples.labels)[chosen].double().mean() - flip) < 0.02
        noise = (clean.labels != examples.labels)[chosen]
        assert abs(noise.double().mean() - 0.25) < 0.02
        flipped = (color != examples.labels)[chosen]
        assert abs((noise & flipped).double().mean() - 0.25 * flip) < 0.02, "the two are independent"


def test_without_label_noise_the_label_is_whether_the_digit_is_below_five(numbered: str) -> None:
    examples = ColoredMNIST(digits=numbered, label_noise=0).load()
    assert examples.classes == ("digits 5-9", "digits 0-4")
    digits = (pixels(examples)[:, :, 14, 14].amax(1).long() - 1) % 10
    assert torch.equal(examples.labels, (digits < 5).long())


def test_the_channel_of_the_colour_keeps_the_digit_and_the_other_is_black(numbered: str) -> None:
    """DomainBed zeroes the channel ``1 - colour``, so colour 1 is in the second channel."""
    examples = ColoredMNIST(digits=numbered, label_noise=0).load()
    inputs = pixels(examples)
    assert inputs.shape == (240, 2, 28, 28)
    kept = inputs.flatten(2).amin(-1) > 0
    assert (kept.sum(1) == 1).all()
    assert torch.equal(kept, inputs.flatten(2).amax(-1) > 0)
    mostly = examples.domains == 0
    assert (kept[:, 1] == examples.labels.bool())[mostly].double().mean() > 0.7


def test_a_probability_out_of_range_is_named() -> None:
    with pytest.raises(MessiError, match="label_noise must be at least 0 and at most 1"):
        ColoredMNIST(label_noise=1.5)
