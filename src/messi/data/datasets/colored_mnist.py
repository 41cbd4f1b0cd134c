"""Colored MNIST as DomainBed has it: colour predicts the label better than shape does, and in one domain in reverse.

The label is "digit below 5", wrong with probability 0.25; the colour is the label, flipped with the domain's
probability. So shape is right in 75 % of all domains' examples, colour in 90 %, 80 % and 10 %.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from messi.core.config import Bounds
from messi.core.seeding import generator
from messi.data.augment import Augmentation
from messi.data.datasets.common.base import DataConfig
from messi.data.digit_environments import BELOW_FIVE, color, deal_digits, draw_binary_labels, join
from messi.data.digits import EMBEDDED
from messi.data.examples import Examples
from messi.data.watcher import Watcher

FLIPS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}


@dataclass(frozen=True, kw_only=True)
class ColoredMNIST(DataConfig):
    """Binary digits whose colour agrees with the label as often as the domain says, as in DomainBed."""

    backbone: ClassVar[str] = "small_cnn"
    augmentation: ClassVar[Augmentation] = "none"

    digits: str = EMBEDDED
    """'embedded' (5,000 digits), 'download', an .npz file, or a folder with the four idx files of MNIST."""
    label_noise: Annotated[float, Bounds(minimum=0, maximum=1)] = 0.25
    """Probability that a label is flipped."""
    data_seed: int = 0
    """Seed of the construction; the same for all runs that are compared."""

    def load(self, watcher: Watcher | None = None) -> Examples:  # noqa: ARG002 (nothing to tell)
        """Deal the digits out to the three domains and colour them."""
        hands = deal_digits(self.digits, self.data_seed, len(FLIPS))
        parts = [self._domain(name, *hand) for name, hand in zip(FLIPS, hands, strict=True)]
        return join(parts, BELOW_FIVE, list(FLIPS))

    def _domain(self, name: str, images: Tensor, digits: Tensor) -> tuple[Tensor, Tensor]:
        stream = generator("colored_mnist", self.data_seed, name)
        labels = draw_binary_labels(digits, self.label_noise, stream)
        return color(images, labels, FLIPS[name], stream), labels.long()
