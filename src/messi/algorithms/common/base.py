"""What every method offers. A method returns named loss terms; the engine steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor, nn

from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.core.config import Config
from messi.core.registry import Registry
from messi.models.encoder import EncoderConfig

ALGORITHMS = Registry("algorithm", "messi.algorithms")


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Config):
    """Base of the hyper-parameters of a method."""

    registry: ClassVar[Registry | None] = ALGORITHMS


@dataclass(frozen=True)
class Group:
    """Parameters that are stepped together by one Adam."""

    parameters: list[nn.Parameter]
    learning_rate: float | None = None
    """By default that of the run."""
    betas: tuple[float, float] = (0.9, 0.999)


class Stepper(Protocol):
    """What the engine lets a method do to its parameters."""

    def descend(self, loss: Callable[[], LossTerms], group: str = "main") -> LossTerms:
        """Take one optimizer step of a group down the gradient of the sum of the terms; return the terms.

        ``loss`` is called once or more: some ways to step look at the loss in two places.
        """


class Algorithm(nn.Module, ABC):
    """A method: everything it learns or keeps is in its ``state_dict``."""

    restart: int | None = None
    """The step before which the optimizer forgets its past, if there is such a step."""

    def phase(self, step: int) -> Hashable | None:  # noqa: ARG002 (for those that have phases)
        """Return which kind of step this is, or None.

        On a GPU one step of each kind is recorded and replayed for all others of that kind, so these must be the same
        computation on other tensors: no Python number that differs from step to step, no waiting for the device.
        None is never recorded.
        """
        return None

    def groups(self) -> dict[str, Group]:
        """Return the parameters by the optimizer that steps them; by default all have the same."""
        return {"main": Group(list(self.parameters()))}

    @abstractmethod
    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Take one training step and return its loss terms."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Prediction:
        """Predict inputs [B, ...]; the answer for one input does not depend on the others."""

    def inspect(self, inputs: Tensor) -> Inspection:
        """Predict inputs [B, ...] and tell of the way there as much as there is to tell; for diagnostics alone."""
        return Inspection(logits=self.predict(inputs).logits)


class LossAlgorithm(Algorithm):
    """A method that is defined by its loss; most are."""

    @abstractmethod
    def loss(self, batch: Batch) -> LossTerms:
        """Return the weighted loss terms of a batch."""

    def phase(self, step: int) -> Hashable | None:  # noqa: ARG002
        """Return the same for every step: a loss that depends on the step says otherwise."""
        return "all"

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Descend the loss once."""
        return stepper.descend(lambda: self.loss(batch))


def inspect_linear(inputs: Tensor, encoder: nn.Module, classifier: nn.Module) -> Inspection:
    """Inspect a classifier that reads what an encoder says."""
    encoded = encoder(inputs)
    return Inspection(logits=classifier(encoded), encoded=encoded, classified=encoded)


def build(config: AlgorithmConfig, *, task: Task, encoder: EncoderConfig) -> Algorithm:
    """Return the method that ``config`` describes, with freshly initialised parameters."""
    algorithm: Algorithm = ALGORITHMS.load(config.name)(config, task=task, encoder=encoder)
    return algorithm
