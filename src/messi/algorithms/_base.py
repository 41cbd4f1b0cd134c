"""What every method offers. A method returns named loss terms; the engine steps."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor, nn

from messi.core.batch import Batch, LossTerms, Prediction, Task
from messi.core.config import Config
from messi.core.registry import Registry
from messi.models.encoder import EncoderConfig

ALGORITHMS = Registry("algorithm", "messi.algorithms")


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Config):
    """Base of the hyper-parameters of a method."""

    registry: ClassVar[Registry | None] = ALGORITHMS


class Stepper(Protocol):
    """What the engine lets a method do to its parameters."""

    def precision(self) -> AbstractContextManager[None]:
        """Return the context in which a loss is computed, and only that."""

    def descend(self, terms: LossTerms) -> None:
        """Take one optimizer step down the gradient of the sum of the terms."""


class Algorithm(nn.Module, ABC):
    """A method: everything it learns or keeps is in its ``state_dict``."""

    capturable: ClassVar[bool] = False
    """Whether a step may be recorded once and replayed on other batches: it depends on the batch and on tensors alone,
    never on a Python number that changes from step to step, and never waits for the device."""

    @abstractmethod
    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Take one training step and return its loss terms."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Prediction:
        """Predict inputs [B, ...]; the answer for one input does not depend on the others."""


class LossAlgorithm(Algorithm):
    """A method that is defined by its loss; most are."""

    capturable: ClassVar[bool] = True

    @abstractmethod
    def loss(self, batch: Batch) -> LossTerms:
        """Return the weighted loss terms of a batch."""

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Descend the loss once."""
        with stepper.precision():
            terms = self.loss(batch)
        stepper.descend(terms)
        # Without the graph behind them, which would keep this step's memory and stream alive in the next.
        return {name: term.detach() for name, term in terms.items()}


def build(config: AlgorithmConfig, *, task: Task, encoder: EncoderConfig) -> Algorithm:
    """Return the method that ``config`` describes, with freshly initialised parameters."""
    algorithm: Algorithm = ALGORITHMS.load(config.name)(config, task=task, encoder=encoder)
    return algorithm
