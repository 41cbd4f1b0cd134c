"""The domain discriminator."""

import pytest
import torch
from torch import nn

from messi.models.discriminator import Discriminator


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_depth_counts_its_linear_layers(depth: int) -> None:
    network = Discriminator(5, 3, width=7, depth=depth)
    layers = [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, nn.Linear)]
    assert layers == [(5, 7), *[(7, 7)] * (depth - 2), (7, 3)]


def test_the_class_is_added_to_the_features_as_a_vector() -> None:
    torch.manual_seed(0)
    network, features, labels = Discriminator(5, 3, num_classes=4), torch.randn(6, 5), torch.randint(4, (6,))
    assert network.classes is not None
    torch.testing.assert_close(network(features, labels), network.mlp(features + network.classes.weight[labels]))


def test_without_classes_the_labels_change_nothing() -> None:
    torch.manual_seed(0)
    network, features = Discriminator(5, 3), torch.randn(6, 5)
    answers = [network(features, torch.full((6,), label)) for label in (0, 1)]
    assert torch.equal(*answers)
