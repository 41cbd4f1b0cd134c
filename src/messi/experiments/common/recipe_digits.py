"""Rotated-Colored MNIST as every stage of the recipe study uses it: all digits, or the 5,000 embedded ones."""

from typing import Literal

from messi.data.datasets.common.digits import EMBEDDED
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import TrainingConfig
from messi.experiments.common.growth import BUDGET

Digits = Literal["digits", "few_digits"]
DIGITS_BACKBONE: dict[Digits, str] = {"digits": "small_cnn", "few_digits": "tiny_cnn"}


def digits_data(study: Digits, digits: str, *, number: int = 9) -> RotatedColoredMNIST:
    """Return the data with K = ``number`` source domains; ``digits`` is where all of MNIST is."""
    if study == "few_digits":
        return RotatedColoredMNIST(digits=EMBEDDED, num_sources=number)
    return RotatedColoredMNIST(digits=digits, num_sources=number, budget=BUDGET)


def digits_schedule(study: Digits, steps: int | None = None, *, small: bool = False) -> TrainingConfig:
    """Return the schedule, with 30 evaluations (6 at the small scale): SWAD averages between evaluations."""
    steps, every, size = (300, 10, 32) if study == "few_digits" else (steps or 600, 20, 64)
    steps, every, size = (60, 10, 16) if small else (steps, every, size)
    return TrainingConfig(steps=steps, evaluate_every=every, batch_per_domain=size)
