"""The losses of CORAL and MMD; the penalties themselves are tested in tests/discrepancy."""

import pytest
import torch

from messi.algorithms.common.penalised import PenalisedFeatures
from messi.algorithms.coral import CORAL
from messi.algorithms.mmd import MMD
from messi.core.batch import Batch, Task
from messi.core.errors import MessiError
from messi.discrepancy.coral import coral
from messi.discrepancy.mmd import domain_mmd
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig

DISTANCES = {CORAL: coral, MMD: domain_mmd}
METHODS = pytest.mark.parametrize("method", DISTANCES)


def build(method: type[PenalisedFeatures], gamma: float = 1.0) -> tuple[PenalisedFeatures, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=4)
    algorithm = method(method.Config(gamma=gamma), task=task, encoder=EncoderConfig(backbone="mlp"))
    domains = torch.tensor([0, 0, 1, 3, 1, 3, 3, 0, 1])
    return algorithm, Batch(inputs=torch.randn(9, 5), labels=torch.randint(3, (9,)), domains=domains)


@METHODS
def test_the_loss_is_the_classification_and_gamma_times_the_distance_of_the_features(
    method: type[PenalisedFeatures],
) -> None:
    algorithm, batch = build(method, gamma=0.3)
    name, features = algorithm.config.name, algorithm.encoder(batch.inputs)
    terms = algorithm.loss(batch)
    expected = domain_mean_cross_entropy(algorithm.classifier(features), batch.labels, batch.domains)
    torch.testing.assert_close(terms["cls"], expected)
    torch.testing.assert_close(terms[name], 0.3 * DISTANCES[method](features, batch.domains, 4))
    assert list(terms) == ["cls", name]


@METHODS
def test_the_penalty_trains_the_encoder_and_not_the_classifier(method: type[PenalisedFeatures]) -> None:
    algorithm, batch = build(method)
    algorithm.loss(batch)[algorithm.config.name].backward()
    assert all(parameter.grad is not None for parameter in algorithm.encoder.parameters())
    assert all(parameter.grad is None for parameter in algorithm.classifier.parameters())


@METHODS
def test_the_default_is_domainbeds_and_a_negative_weight_is_refused(method: type[PenalisedFeatures]) -> None:
    assert method.Config().gamma == 1
    with pytest.raises(MessiError, match="gamma must be at least 0"):
        method.Config(gamma=-1)
