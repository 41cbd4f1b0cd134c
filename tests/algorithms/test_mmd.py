"""How MMD's loss is put together; the penalty itself is tested in tests/discrepancy."""

import pytest
import torch

from messi.algorithms.mmd import Mmd
from messi.core.batch import Batch, Task
from messi.core.errors import MessiError
from messi.discrepancy.domain_mmd import domain_mmd
from messi.losses.classification import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig


def build(gamma: float = 1.0) -> tuple[Mmd, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=4)
    algorithm = Mmd(Mmd.Config(gamma=gamma), task=task, encoder=EncoderConfig(backbone="mlp"))
    domains = torch.tensor([0, 0, 1, 3, 1, 3, 3, 0, 1])
    return algorithm, Batch(inputs=torch.randn(9, 5), labels=torch.randint(3, (9,)), domains=domains)


def test_the_loss_is_the_classification_and_gamma_times_the_discrepancy_of_the_encoders_features() -> None:
    algorithm, batch = build(gamma=0.3)
    features = algorithm.encoder(batch.inputs)
    terms = algorithm.loss(batch)
    expected = domain_mean_cross_entropy(algorithm.classifier(features), batch.labels, batch.domains)
    torch.testing.assert_close(terms["cls"], expected)
    torch.testing.assert_close(terms["mmd"], 0.3 * domain_mmd(features, batch.domains, 4))
    assert list(terms) == ["cls", "mmd"]


def test_the_penalty_trains_the_encoder_and_not_the_classifier() -> None:
    algorithm, batch = build()
    algorithm.loss(batch)["mmd"].backward()
    assert all(parameter.grad is not None for parameter in algorithm.encoder.parameters())
    assert all(parameter.grad is None for parameter in algorithm.classifier.parameters())


def test_the_default_is_domainbeds_and_a_negative_weight_is_refused() -> None:
    assert Mmd.Config().gamma == 1
    with pytest.raises(MessiError, match="gamma must be at least 0"):
        Mmd.Config(gamma=-1)
