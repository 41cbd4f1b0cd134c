"""Calibration: whether a model is right as often as it is confident.

ECE = sum over bins of  n_b / N  |accuracy_b - confidence_b|,   15 bins of equal width (Guo et al., 2017)
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from messi.diagnostics.recording import Recording

BINS = 15


@dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence."""

    confidence: float
    """Mean probability of the predicted class."""
    accuracy: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """The non-empty bins, from the least confident up, and the expected calibration error."""

    ece: float
    """NaN without predictions."""
    bins: tuple[Bin, ...]


class CalibrationTally:
    """Sorts predictions into bins of confidence, batch by batch; a bin includes its upper end but not its lower one."""

    def __init__(self, bins: int = BINS) -> None:
        self._sums = torch.zeros(bins, 3, dtype=torch.float64)
        """[bins, 3] number of predictions, sum of confidences, number of correct predictions."""

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: logits [B, classes], labels [B]."""
        confidence, answer = logits.double().softmax(-1).max(-1)
        bins = len(self._sums)
        place = (confidence * bins).ceil().long().clamp(1, bins) - 1
        row = torch.stack([torch.ones_like(confidence), confidence, (answer == labels).double()], dim=1)
        self._sums.index_add_(0, place, row)

    def result(self) -> Calibration:
        """Return the calibration over the batches so far."""
        filled = [(int(n), confident / n, right / n) for n, confident, right in self._sums.tolist() if n]
        total = sum(n for n, _, _ in filled)
        return Calibration(
            ece=sum(n / total * abs(a - c) for n, c, a in filled) if filled else math.nan,
            bins=tuple(Bin(confidence=c, accuracy=a, count=n) for n, c, a in filled),
        )


def part(recording: Recording) -> dict[str, Any]:
    """Return the calibration of each role."""
    by_role = {}
    for one in recording.roles:
        tally = CalibrationTally()
        tally.update(one.logits, one.labels)
        by_role[one.role] = asdict(tally.result())
    return {"calibration": by_role}
