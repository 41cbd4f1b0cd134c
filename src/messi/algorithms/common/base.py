"""The interface of every method: it returns named loss terms, and the engine takes the steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor, nn

from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.core.config import Config
from messi.core.errors import MessiError
from messi.core.precision import Precision
from messi.core.registry import Registry
from messi.models.encoder import EncoderConfig, restrict_encoders
from messi.models.tuning import Tuning, TuningKind

ALGORITHMS = Registry("algorithm", "messi.algorithms")


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Config):
    """Base class for the hyper-parameters of a method."""

    registry: ClassVar[Registry | None] = ALGORITHMS

    def unused(self) -> dict[str, str]:
        """Return the settings that have no effect on training with the values of others, each with the reason."""
        return {}


@dataclass(frozen=True)
class Group:
    """Parameters that are updated together by one Adam optimizer."""

    parameters: list[nn.Parameter]
    learning_rate: float | None = None
    """By default, the learning rate of the run."""
    betas: tuple[float, float] = (0.9, 0.999)


class Stepper(Protocol):
    """The engine's interface for a method to update its parameters."""

    def descend(self, loss: Callable[[], LossTerms], group: str = "main") -> LossTerms:
        """Take one optimizer step of a group on the sum of the terms, and return the terms.

        ``loss`` may be called more than once: sharpness-aware steps evaluate it at two points.
        """


class Algorithm(nn.Module, ABC):
    """A method. Everything that it learns is in its ``state_dict``.

    What only training needs may be in buffers that are not persistent: a checkpoint contains them, a model file does
    not.
    """

    tunings: ClassVar[tuple[TuningKind, ...]] = ("full", "head", "last", "lora")
    """The values of ``--tune`` that the method supports."""
    precision: Precision | None = None
    """In which precision the method trains and predicts; None: as its device does by default."""
    whole_inputs: ClassVar[bool] = True
    """Whether the method selects or changes inputs before it encodes them. Otherwise it passes ``batch.inputs`` to its
    encoder as they are, and each of several processes loads only its own share of them."""
    restart: int | None = None
    """The step before which the optimizer is reset, if any."""

    def phase(self, step: int) -> Hashable | None:  # noqa: ARG002 (used by methods with phases)
        """Return which kind of step this is, or None.

        On a GPU, one step of each kind is captured as a CUDA graph and replayed for all other steps of that kind. They
        must therefore differ only in the values of tensors: no Python number that changes between steps, and no
        synchronisation with the device. Steps of the kind None are never captured.
        """
        return None

    def groups(self) -> dict[str, Group]:
        """Return the parameter groups by name, one optimizer each; by default one group with all parameters."""
        return {"main": Group(list(self.parameters()))}

    @classmethod
    def require(cls, tuning: Tuning) -> None:
        """Raise if the method does not support a tuning of its encoder."""
        if tuning.kind not in cls.tunings:
            supported = [{"last": "last:N", "lora": "lora:R"}.get(kind, kind) for kind in cls.tunings]
            raise MessiError(
                f"tune '{tuning}' does not work with {cls.__name__}, which changes the encoder itself; use --tune "
                f"{' or '.join(supported)}, or another method."
            )

    def restrict(self, tuning: Tuning) -> None:
        """Let only a part of the encoder train, from now on."""
        self.require(tuning)
        restrict_encoders(self, tuning)

    @abstractmethod
    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Take one training step and return its loss terms."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Prediction:
        """Predict inputs [B, ...]; the prediction for an input does not depend on the rest of the batch."""

    def inspect(self, inputs: Tensor) -> Inspection:
        """Predict inputs [B, ...] and return the intermediate results of the method; used for diagnostics only."""
        return Inspection(logits=self.predict(inputs).logits)


class LossAlgorithm(Algorithm):
    """A method that is defined by its loss, as most are."""

    @abstractmethod
    def loss(self, batch: Batch) -> LossTerms:
        """Return the weighted loss terms of a batch."""

    def phase(self, step: int) -> Hashable | None:  # noqa: ARG002
        """Return one phase for all steps; a loss that depends on the step overrides this."""
        return "all"

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Take one step on the loss."""
        return stepper.descend(lambda: self.loss(batch))


def inspect_linear(inputs: Tensor, encoder: nn.Module, classifier: nn.Module) -> Inspection:
    """Return the logits and features [B, R] of a linear classifier on an encoder."""
    encoded = encoder(inputs)
    return Inspection(logits=classifier(encoded), encoded=encoded, classified=encoded)


def build(config: AlgorithmConfig, *, task: Task, encoder: EncoderConfig) -> Algorithm:
    """Return the method that ``config`` describes, with newly initialised parameters."""
    algorithm: Algorithm = ALGORITHMS.load(config.name)(config, task=task, encoder=encoder)
    return algorithm
