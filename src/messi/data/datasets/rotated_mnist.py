"""Rotated MNIST as in DomainBed: six domains that differ only in the angle.

The pixels equal DomainBed's (Pillow's bilinear rotation) to within 1/255, except at the outermost edge of the
unrotated image, which digits hardly ever reach.
"""

from dataclasses import dataclass
from typing import ClassVar

from messi.data.augment import Augmentation
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.common.digits import DIGITS, EMBEDDED, deal_digits, join, rotate
from messi.data.examples import Examples
from messi.data.progress import DataProgress

ANGLES = (0, 15, 30, 45, 60, 75)


@dataclass(frozen=True, kw_only=True)
class RotatedMNIST(DataConfig):
    """Ten digits, rotated by the angle of the domain, as in DomainBed."""

    backbone: ClassVar[str] = "small_cnn"
    augmentation: ClassVar[Augmentation] = "none"

    digits: str = EMBEDDED
    """'embedded' (5,000 digits), 'download', an .npz file, or a folder with the four idx files of MNIST."""
    data_seed: int = 0
    """Seed of the division into domains; use the same for all runs that are compared."""

    def load(self, progress: DataProgress | None = None) -> Examples:  # noqa: ARG002 (nothing to report)
        """Divide the digits among the six angles and rotate them."""
        hands = deal_digits(self.digits, self.data_seed, len(ANGLES))
        parts = [(rotate(images, angle), digits) for angle, (images, digits) in zip(ANGLES, hands, strict=True)]
        return join(parts, DIGITS, [str(angle) for angle in ANGLES])
