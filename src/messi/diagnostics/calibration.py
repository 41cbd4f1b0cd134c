"""Whether a model is right as often as it is sure.

ECE = sum over bins of  n_b / N  |accuracy_b - confidence_b|,   15 bins of equal width (Guo et al., 2017)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 15


@dataclass(frozen=True)
class Bin:
    """Answers of about the same confidence."""

    confidence: float
    """Their mean probability."""
    accuracy: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """The bins that have answers, from the least confident up, and the expected calibration error."""

    ece: float
    """NaN where there are no answers."""
    bins: tuple[Bin, ...]


class CalibrationTally:
    """Sorts answers into bins of confidence, batch by batch; a bin has its upper end, and not its lower one."""

    def __init__(self, bins: int = BINS) -> None:
        self._sums = torch.zeros(bins, 3, dtype=torch.float64)
        """[bins, 3] number of answers, sum of confidences, right answers."""

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: logits [B, classes], labels [B]."""
        confidence, answer = logits.double().softmax(-1).max(-1)
        bins = len(self._sums)
        place = (confidence * bins).ceil().long().clamp(1, bins) - 1
        row = torch.stack([torch.ones_like(confidence), confidence, (answer == labels).double()], dim=1)
        self._sums.index_add_(0, place, row)

    def result(self) -> Calibration:
        """Return what follows from the batches so far."""
        filled = [(int(n), confident / n, right / n) for n, confident, right in self._sums.tolist() if n]
        total = sum(n for n, _, _ in filled)
        return Calibration(
            ece=sum(n / total * abs(a - c) for n, c, a in filled) if filled else math.nan,
            bins=tuple(Bin(confidence=c, accuracy=a, count=n) for n, c, a in filled),
        )
