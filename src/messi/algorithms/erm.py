"""ERM: minimise the classification loss of the source domains, nothing else (Vapnik, 1991)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from messi.algorithms.common.base import AlgorithmConfig, LossAlgorithm, inspect_linear
from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig


class ERM(LossAlgorithm):
    """An encoder and a linear classifier, trained on the mean cross-entropy of the source domains."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """ERM has no hyper-parameters."""

    whole_inputs: ClassVar[bool] = False

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.encoder = encoder.build(task.input_shape)
        self.classifier = nn.Linear(self.encoder.width, task.num_classes)

    def loss(self, batch: Batch) -> LossTerms:
        """Return the cross-entropy, averaged over domains."""
        logits = self.classifier(self.encoder(batch.inputs))
        return {"cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains)}

    def predict(self, inputs: Tensor) -> Prediction:
        """Return the logits."""
        return Prediction(logits=self.classifier(self.encoder(inputs)))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Return the logits and the features."""
        return inspect_linear(inputs, self.encoder, self.classifier)
