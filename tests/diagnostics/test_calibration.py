import math

import pytest
import torch
from torch import Tensor

from messi.diagnostics.calibration import CalibrationTally


def logits_of(confidences: list[float]) -> Tensor:
    """Return logits of two classes whose first has these probabilities."""
    return torch.tensor([[math.log(p), math.log1p(-p)] for p in confidences], dtype=torch.float64)


def test_three_bins_by_hand() -> None:
    tally = CalibrationTally()
    tally.update(logits_of([0.95, 0.97]), torch.tensor([0, 1]))
    tally.update(logits_of([0.6, 0.64, 0.81]), torch.tensor([0, 0, 0]))
    found = tally.result()
    # Bins of width 1/15: (.6, .667] holds .64, (.533, .6] holds .6, (.8, .867] holds .81, (.933, 1] holds .95, .97.
    assert [one.count for one in found.bins] == [1, 1, 1, 2]
    assert [one.confidence for one in found.bins] == pytest.approx([0.6, 0.64, 0.81, 0.96])
    assert [one.accuracy for one in found.bins] == [1, 1, 1, 0.5]
    assert found.ece == pytest.approx((0.4 + 0.36 + 0.19 + 2 * 0.46) / 5)


def test_certain_and_correct_predictions_have_no_error_and_are_in_the_last_bin() -> None:
    tally = CalibrationTally()
    tally.update(torch.tensor([[1e4, 0.0], [0.0, 1e4]]), torch.tensor([0, 1]))
    found = tally.result()
    assert found.ece == 0
    assert [(one.confidence, one.count) for one in found.bins] == [(1.0, 2)]


def test_without_predictions_there_is_no_calibration_error() -> None:
    found = CalibrationTally().result()
    assert math.isnan(found.ece)
    assert found.bins == ()


def test_labels_drawn_from_the_probabilities_are_calibrated() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40_000, 4, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    tally = CalibrationTally()
    for rows in torch.arange(len(labels)).split(999):
        tally.update(logits[rows], labels[rows])
    # The accuracy of a bin has a standard deviation of about 0.5 / sqrt(40,000 / 15) = 0.01, and a mean size of 0.008.
    assert tally.result().ece < 0.012
    wrong = CalibrationTally()
    wrong.update(3 * logits, labels)
    assert wrong.result().ece > 0.1
