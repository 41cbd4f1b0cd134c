"""Rotated MNIST as DomainBed has it: six domains that differ in the angle alone.

The pixels are those of DomainBed (Pillow's bilinear rotation) to within 1/255, except on the outermost rim of the
unrotated image, where digits hardly ever are.
"""

from dataclasses import dataclass
from typing import ClassVar

from messi.data.augment import Augmentation
from messi.data.datasets.common.base import DataConfig
from messi.data.digit_environments import DIGITS, deal_digits, join, rotate
from messi.data.digits import EMBEDDED
from messi.data.examples import Examples
from messi.data.watcher import Watcher

ANGLES = (0, 15, 30, 45, 60, 75)


@dataclass(frozen=True, kw_only=True)
class RotatedMNIST(DataConfig):
    """Ten digits, rotated by an angle that is the domain, as in DomainBed."""

    backbone: ClassVar[str] = "small_cnn"
    augmentation: ClassVar[Augmentation] = "none"

    digits: str = EMBEDDED
    """'embedded' (5,000 digits), 'download', an .npz file, or a folder with the four idx files of MNIST."""
    data_seed: int = 0
    """Seed of the division into domains; the same for all runs that are compared."""

    def load(self, watcher: Watcher | None = None) -> Examples:  # noqa: ARG002 (nothing to tell)
        """Deal the digits out to the six angles and rotate them."""
        hands = deal_digits(self.digits, self.data_seed, len(ANGLES))
        parts = [(rotate(images, angle), digits) for angle, (images, digits) in zip(ANGLES, hands, strict=True)]
        return join(parts, DIGITS, [str(angle) for angle in ANGLES])
