"""Environments of Rotated Colored MNIST: their factors, digits, noise and budget."""

from pathlib import Path

import numpy as np
import pytest
import torch

from messi.core.errors import MessiError
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.images import Images


@pytest.fixture(scope="module")
def full_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """70,000 blank digits with one bright pixel in an .npz file of the usual layout."""
    path = tmp_path_factory.mktemp("digits") / "mnist.npz"
    rng = np.random.default_rng(0)
    images = np.zeros((18_000, 28, 28), np.uint8)
    images[:, 10, 20] = 255
    digits = rng.integers(0, 10, 18_000)
    np.savez(path, x_train=images[:15000], y_train=digits[:15000], x_test=images[15000:], y_test=digits[15000:])
    return path


def test_the_environments_have_the_papers_factors_in_row_major_order() -> None:
    names = RotatedColoredMNIST(num_sources=17).load().domain_names
    assert names[:11] == ("rot0-p0", *(f"rot0-p0.{i}" for i in range(1, 10)), "rot45-p0")
    assert (len(names), names[-1]) == (18, "rot45-p0.7")


def test_nested_sources_are_the_first_without_the_test_environment() -> None:
    data = RotatedColoredMNIST(num_sources=3)
    assert data.test_domain == "rot0-p0.5"
    assert data.load().domain_names == ("rot0-p0", "rot0-p0.1", "rot0-p0.2", "rot0-p0.5")


def test_random_sources_depend_on_the_data_seed_and_come_with_the_test_environment() -> None:
    drawn = {RotatedColoredMNIST(num_sources=3, order="random", data_seed=s).load().domain_names for s in range(5)}
    assert len(drawn) > 1
    assert all("rot0-p0.5" in names and len(names) == 4 for names in drawn)


def test_color_and_label_noise_have_the_stated_probabilities(full_digits: Path) -> None:
    """With 1,000 examples per environment a frequency is within 0.06 of its probability (4 standard errors)."""
    examples = RotatedColoredMNIST(digits=str(full_digits), num_sources=9).load()
    assert isinstance(examples.inputs, Images)
    assert torch.bincount(examples.domains).tolist() == [1000] * 10
    bright = examples.inputs.stack().flatten(2).amax(-1)
    assert ((bright > 0).sum(1) == 1).all()
    color = bright.argmax(1)
    for domain, name in enumerate(examples.domain_names):
        chosen = examples.domains == domain
        flipped = (color != examples.labels)[chosen].double().mean()
        assert abs(flipped - float(name.split("-p")[1])) < 0.06
    clean = RotatedColoredMNIST(digits=str(full_digits), num_sources=9, label_noise=0).load()
    noise = (clean.labels != examples.labels).double().mean()
    assert abs(noise - 0.25) < 0.02


def test_images_are_rotated_by_the_environments_angle(full_digits: Path) -> None:
    """The pixel at (10, 20) is 6.5 to the right and 3.5 above the centre; a rotation moves it by 90 degrees."""
    data = RotatedColoredMNIST(digits=str(full_digits), num_sources=17, rotation_step=90)
    examples = data.load()
    image = examples.inputs[int((examples.domains == examples.domain_names.index("rot90-p0")).nonzero()[0])]
    assert divmod(int(image.amax(0).argmax()), 28) == (27 - 20, 10)


def test_only_the_sources_share_the_budget(full_digits: Path) -> None:
    examples = RotatedColoredMNIST(digits=str(full_digits), num_sources=4, budget=1002).load()
    counts = dict(zip(examples.domain_names, torch.bincount(examples.domains).tolist(), strict=True))
    assert counts.pop("rot0-p0.5") == 1000
    assert set(counts.values()) == {250}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"color_step": 0.3}, r"color_step must divide 0\.5"),
        ({"environments": 5}, "environments must be above 5"),
        ({"num_sources": 18}, "num_sources must be at most 17"),
    ],
)
def test_settings_without_a_test_environment_or_enough_sources_are_named(
    settings: dict[str, float], sentence: str
) -> None:
    with pytest.raises(MessiError, match=sentence):
        RotatedColoredMNIST(**settings).load()  # type: ignore[arg-type]  # names and values are the test's own


def test_an_environment_has_the_same_digits_with_any_other_environments(full_digits: Path) -> None:
    few = RotatedColoredMNIST(digits=str(full_digits), num_sources=1).load()
    many = RotatedColoredMNIST(digits=str(full_digits), num_sources=9).load()
    assert torch.equal(few.labels[few.domains == 0], many.labels[many.domains == 0])
