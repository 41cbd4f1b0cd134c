import math

import pytest
import torch

from messi.algorithms.common.base import build
from messi.algorithms.messi import MESSI
from messi.core.batch import Task
from messi.core.errors import MessiError
from messi.diagnostics.recording import record
from messi.diagnostics.routing import routing_tables
from messi.diagnostics.slots import correlation, domain_pairs, overlap, part, responsibilities, top_slots
from messi.losses.ssi.slots import SlotRule, find_slots, slot_weights
from messi.models.encoder import EncoderConfig

from .helpers import SIZE, examples, loader_of

NAN = float("nan")


def test_responsibilities_by_hand() -> None:
    cells = torch.tensor([[[1.0, 0.0]], [[0.25, 0.75]], [[NAN, NAN]]])
    found = responsibilities(cells, SlotRule())
    assert domain_pairs(3) == [(0, 1), (0, 2), (1, 2)]
    gate = [1 / (1 + math.exp(-4 * mass)) for mass in (1.0, 0.25, 0.0, 0.75)]
    assert found[0, 0].tolist() == pytest.approx([gate[0] * gate[1], gate[2] * gate[3]])
    assert found[1:].isnan().all()


@pytest.mark.parametrize("rule", [SlotRule(), SlotRule("sigmoid", 1.0), SlotRule("product"), SlotRule("centred", 2.0)])
def test_they_equal_the_weights_of_the_loss_if_one_batch_is_all_data(rule: SlotRule) -> None:
    generator = torch.Generator().manual_seed(0)
    routing = torch.rand(24, 3, generator=generator).softmax(-1)
    labels, domains = torch.arange(24) % 2, torch.arange(24) // 8
    cells = torch.stack(
        [torch.stack([routing[(domains == k) & (labels == c)].mean(0) for c in range(2)]) for k in range(3)]
    )
    weights = slot_weights(routing, find_slots(labels, domains), rule)
    # The loss lists the pairs of the first class, then those of the second.
    torch.testing.assert_close(weights.T.unflatten(0, (2, 3)).transpose(0, 1), responsibilities(cells, rule))


def test_the_document_follows_the_rule_of_the_model() -> None:
    config = MESSI.Config(slot_weight="centred", sharpness=2.0)
    encoder = EncoderConfig(backbone="tiny_cnn", pretrained=False)
    task = Task(input_shape=(3, SIZE, SIZE), num_classes=3, num_domains=2)
    recording = record(build(config, task=task, encoder=encoder), loader_of(examples()), {})
    assert recording.source is not None
    document, tables = part(recording)["slots"], routing_tables(recording.source, 3)
    assert tables is not None
    assert (document["slot_weight"], document["sharpness"]) == ("centred", 2.0)
    gate = torch.sigmoid(2 * (6 * tables.by_domain_and_class - 1))
    assert document["responsibilities"][0][0] == pytest.approx((gate[0, 0] * gate[1, 0]).tolist())


def test_correlation_by_hand_over_the_slots_that_both_have() -> None:
    first = torch.tensor([1.0, 2.0, 3.0, NAN, 9.0])
    second = torch.tensor([2.0, 4.0, 6.0, 1.0, NAN])
    assert correlation(first, second) == pytest.approx(1)
    assert correlation(first, -second) == pytest.approx(-1)
    # Deviations (-1, 0, 1) and (-1, 2, -1) / 1: orthogonal.
    assert correlation(first, torch.tensor([0.0, 3.0, 0.0, 0.0, NAN])) == pytest.approx(0)
    assert math.isnan(correlation(first, torch.ones(5)))


@pytest.mark.parametrize("value", [0.25, 0.7, torch.sigmoid(torch.tensor(4.0, dtype=torch.float64)).item() ** 2])
def test_constant_weights_have_no_correlation_though_their_mean_is_rounded(value: float) -> None:
    """A single expert has equal weights; the mean of 126 times 0.7 is not exact in binary."""
    constant = torch.full((126,), value, dtype=torch.float64)
    nearly = constant + 1e-16 * torch.arange(126)
    varied = torch.linspace(0.3, 0.9, 126, dtype=torch.float64)
    for other in (constant, nearly, varied):
        assert math.isnan(correlation(constant, other))
        assert math.isnan(correlation(other, nearly))
    assert correlation(varied, value + 1e-6 * varied) == pytest.approx(1)


def test_top_slots_and_their_overlap_by_hand() -> None:
    weights = torch.tensor([[0.1, 0.9, NAN], [0.5, 0.7, 0.2]])
    half = top_slots(weights, share=0.4)
    assert half.tolist() == [[False, True, False], [False, True, False]]
    assert top_slots(weights, share=1.0).sum() == 5
    assert top_slots(weights, share=0.01).sum() == 1
    other = torch.tensor([[False, True, False], [True, False, True]])
    assert overlap(half, other) == pytest.approx(1 / 4)
    assert overlap(half, half) == 1


def test_of_equal_weights_the_first_are_selected() -> None:
    assert top_slots(torch.ones(4), share=0.5).tolist() == [True, True, False, False]


@pytest.mark.parametrize("share", [0.0, 1.5, 10])
def test_an_invalid_fraction_is_named(share: float) -> None:
    with pytest.raises(MessiError, match="share must be above 0 and at most 1"):
        top_slots(torch.ones(4), share=share)
