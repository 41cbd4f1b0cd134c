"""What CDANN adds to DANN: the discriminator reads the class, and classes have equal weight."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.cdann import CDANN
from messi.core.batch import Batch, Task
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig

from .tolerance import near


def build(labels: list[int], *, penalty: float = 0.0) -> tuple[CDANN, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=2)
    config = CDANN.Config(adversary_weight=0.7, gradient_penalty=penalty)
    algorithm = CDANN(config, task=task, encoder=EncoderConfig(backbone="mlp"))
    domains = torch.arange(2).repeat(len(labels) // 2)
    return algorithm, Batch(inputs=torch.randn(len(labels), 5), labels=torch.tensor(labels), domains=domains, step=1)


UNEQUAL = [0, 0, 0, 0, 0, 1, 1, 2]


def class_balanced(logits: Tensor, batch: Batch) -> Tensor:
    """Return the mean over the classes in the batch of each class's mean loss, in a loop."""
    losses = functional.cross_entropy(logits, batch.domains, reduction="none")
    return torch.stack([losses[batch.labels == label].mean() for label in batch.labels.unique()]).mean()


@pytest.mark.parametrize("labels", [UNEQUAL, [2, 2, 0, 2]])
def test_every_class_in_the_batch_has_the_same_weight(labels: list[int]) -> None:
    algorithm, batch = build(labels)
    assert algorithm.discriminator.classes is not None
    logits = algorithm.discriminator.mlp(
        algorithm.encoder(batch.inputs) + algorithm.discriminator.classes.weight[batch.labels]
    )
    torch.testing.assert_close(algorithm.loss(batch)["disc"], class_balanced(logits, batch))


@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_steps_match_a_direct_transcription(penalty: float) -> None:
    """If all classes are in the batch, the weights are DomainBed's: 1 / (count of the class * number of classes)."""
    algorithm, batch = build(UNEQUAL, penalty=penalty)
    twin = copy.deepcopy(algorithm)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-3))
    assert twin.discriminator.classes is not None
    adversary = nn.ModuleList([twin.discriminator.classes, twin.discriminator.mlp])
    adams = [
        torch.optim.Adam(side.parameters(), lr=1e-2, betas=(0.5, 0.9), weight_decay=1e-3)
        for side in (adversary, nn.ModuleList([twin.encoder, twin.classifier]))
    ]
    counts = torch.tensor([5, 2, 1])
    for step in range(1, 7):
        features = twin.encoder(batch.inputs)
        given = features + twin.discriminator.classes(batch.labels)
        losses = functional.cross_entropy(twin.discriminator.mlp(given), batch.domains, reduction="none")
        (slope,) = torch.autograd.grad(losses.sum(), given, create_graph=True)
        loss = (losses / (counts[batch.labels] * 3)).sum() + penalty * slope.square().sum(1).mean()
        if step % 2 == 0:
            loss = functional.cross_entropy(twin.classifier(features), batch.labels) - 0.7 * loss
        twin.zero_grad()
        loss.backward()
        adams[(step - 1) % 2].step()
        algorithm.update(Batch(batch.inputs, batch.labels, batch.domains, step), stepper)
        for mine, theirs in zip(algorithm.parameters(), twin.parameters(), strict=True):
            near(mine, theirs)
