"""Rotated-Colored MNIST: shape predicts the label everywhere; colour and rotation change with the environment.

Environment e has the rotation ``rotation_step * (e // C)`` and the colour-flip probability ``color_step * (e % C)``
with ``C = round(1 / color_step)`` (the paper's appendix C). The label is "digit below 5" with noise. The colour is the
label, flipped with the environment's probability. Colour is therefore a shortcut that fails where the probability is
0.5: in environment 5, the paper's target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from messi.core.config import Bounds
from messi.core.errors import MessiError
from messi.core.seeding import generator
from messi.data.augment import Augmentation
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.common.digits import BELOW_FIVE, EMBEDDED, color, deal_digits, draw_binary_labels, join, rotate
from messi.data.examples import Examples
from messi.data.progress import DataProgress


@dataclass(frozen=True, kw_only=True)
class RotatedColoredMNIST(DataConfig):
    """Binary digits whose colour and rotation depend on the domain; the embedded data set."""

    backbone: ClassVar[str] = "small_cnn"
    augmentation: ClassVar[Augmentation] = "none"

    digits: str = EMBEDDED
    """'embedded' (5,000 digits), 'download', an .npz file, or a folder with the four idx files of MNIST."""
    environments: Annotated[int, Bounds(minimum=2)] = 18
    """E, the number of environments among which the digits are divided."""
    num_sources: Annotated[int, Bounds(minimum=1)] = 9
    """K, the number of environments that become domains, in addition to the test environment."""
    order: Literal["nested", "random"] = "nested"
    """The first K environments in row-major order (as in the paper's curves), or K random ones."""
    budget: Annotated[int, Bounds(minimum=1)] | None = None
    """B, the maximum number of examples of all K environments together; each has at most B / K."""
    rotation_step: Annotated[float, Bounds(minimum=-360, maximum=360)] = 45.0
    """Degrees between rows of environments."""
    color_step: Annotated[float, Bounds(above=0, maximum=1)] = 0.1
    """Difference in colour-flip probability between neighbouring environments in a row."""
    label_noise: Annotated[float, Bounds(minimum=0, maximum=1)] = 0.25
    """Probability that a label is flipped."""
    data_seed: int = 0
    """Seed of the construction; use the same for all runs that are compared."""

    def load(self, progress: DataProgress | None = None) -> Examples:  # noqa: ARG002 (nothing to report)
        """Build the test environment and the K others."""
        test = self._test_environment()
        chosen = sorted([test, *self._sources(test)])
        hands = deal_digits(self.digits, self.data_seed, self.environments)
        parts = []
        for environment in chosen:
            members = slice(None)
            if self.budget and environment != test:
                members = slice(self.budget // self.num_sources)
            images, digits = hands[environment]
            parts.append(self._environment(environment, images[members], digits[members]))
        return join(parts, BELOW_FIVE, [self._name(environment) for environment in chosen])

    @property
    def test_domain(self) -> str:
        """The environment without rotation in which colour does not predict the label."""
        return self._name(self._test_environment())

    @property
    def source_domains(self) -> tuple[str, ...]:
        """The K environments besides the test environment."""
        return tuple(self._name(environment) for environment in sorted(self._sources(self._test_environment())))

    def default_targets(self, domains: Sequence[str]) -> list[tuple[str, ...]]:  # noqa: ARG002 (there is only one)
        """Return the test environment."""
        return [(self.test_domain,)]

    def _factors(self, environment: int) -> tuple[float, float]:
        row, column = divmod(environment, round(1 / self.color_step))
        return self.rotation_step * row, self.color_step * column

    def _name(self, environment: int) -> str:
        rotation, flip = self._factors(environment)
        return f"rot{rotation:g}-p{flip:.3g}"

    def _test_environment(self) -> int:
        test = round(0.5 / self.color_step)
        if abs(test * self.color_step - 0.5) > 1e-9:
            raise MessiError(
                f"color_step must divide 0.5, such as 0.1 or 0.25, so that colour does not predict the label in one "
                f"environment, but is {self.color_step}."
            )
        if test >= self.environments:
            raise MessiError(
                f"environments must be above {test} to include the test environment, but is {self.environments}."
            )
        return test

    def _sources(self, test: int) -> list[int]:
        pool = [e for e in range(self.environments) if e != test]
        if self.num_sources > len(pool):
            raise MessiError(
                f"num_sources must be at most {len(pool)} with environments={self.environments}, "
                f"but is {self.num_sources}."
            )
        if self.order == "random":
            shuffled = torch.randperm(len(pool), generator=generator("environments", self.data_seed))
            pool = [pool[i] for i in shuffled.tolist()]
        return pool[: self.num_sources]

    def _environment(self, environment: int, images: Tensor, digits: Tensor) -> tuple[Tensor, Tensor]:
        """Return two-channel images [n, 2, 28, 28] and noisy binary labels [n] of one environment."""
        rotation, flip = self._factors(environment)
        random = generator("environment", self.data_seed, environment)
        labels = draw_binary_labels(digits, self.label_noise, random)
        return color(rotate(images, rotation), labels, flip, random), labels.long()
