"""Colored MNIST as in DomainBed: colour predicts the label better than shape does, except in one domain.

The label is "digit below 5", wrong with probability 0.25; the colour is the label, flipped with the domain's
probability. Shape is therefore right for 75 % of the examples of every domain, colour for 90 %, 80 % and 10 %.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from messi.core.config import Bounds
from messi.core.seeding import generator
from messi.data.augment import Augmentation
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.common.digits import BELOW_FIVE, EMBEDDED, color, deal_digits, draw_binary_labels, join
from messi.data.examples import Examples
from messi.data.progress import DataProgress

FLIPS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}


@dataclass(frozen=True, kw_only=True)
class ColoredMNIST(DataConfig):
    """Binary digits whose colour agrees with the label to a degree that the domain sets, as in DomainBed."""

    backbone: ClassVar[str] = "small_cnn"
    augmentation: ClassVar[Augmentation] = "none"

    digits: str = EMBEDDED
    """'embedded' (5,000 digits), 'download', an .npz file, or a folder with the four idx files of MNIST."""
    label_noise: Annotated[float, Bounds(minimum=0, maximum=1)] = 0.25
    """Probability that a label is flipped."""
    data_seed: int = 0
    """Seed of the construction; use the same for all runs that are compared."""

    def load(self, progress: DataProgress | None = None) -> Examples:  # noqa: ARG002 (nothing to report)
        """Divide the digits among the three domains and colour them."""
        hands = deal_digits(self.digits, self.data_seed, len(FLIPS))
        parts = [self._domain(name, *hand) for name, hand in zip(FLIPS, hands, strict=True)]
        return join(parts, BELOW_FIVE, list(FLIPS))

    def _domain(self, name: str, images: Tensor, digits: Tensor) -> tuple[Tensor, Tensor]:
        random = generator("colored_mnist", self.data_seed, name)
        labels = draw_binary_labels(digits, self.label_noise, random)
        return color(images, labels, FLIPS[name], random), labels.long()
