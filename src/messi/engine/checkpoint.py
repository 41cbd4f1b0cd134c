"""Checkpoints: the state from which a killed run resumes and ends with the same bits as an undisturbed one."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.core.documents import parse_document
from messi.core.errors import MessiError
from messi.core.run_documents import Count
from messi.core.tensorfile import read_tensors, tensors_checksum, write_tensors
from messi.engine.async_writer import Snapshot
from messi.engine.averaging.averager import AverageDescription, Averager
from messi.engine.metrics_log import MetricsLog
from messi.engine.stepper import AdamStepper
from messi.models.encoder import untrained_names
from messi.models.lora import plain_state


@dataclass(frozen=True, kw_only=True)
class CheckpointDescription:
    """The contents of a checkpoint besides its tensors."""

    run: str
    """The identity of its run."""
    step: Count
    records_size: Count
    """Bytes of the records up to the checkpoint."""
    records_checksum: str
    """Checksum of these bytes."""
    terms: tuple[str, ...]
    average: AverageDescription | None
    frozen: str | None = None
    """Checksum of the weights that never change and are not in the checkpoint; None if there are none."""


@dataclass(frozen=True)
class FrozenWeights:
    """The weights of an encoder that a run does not train; checkpoints do not repeat them."""

    names: frozenset[str] = frozenset()
    checksum: str | None = None

    @classmethod
    def of(cls, algorithm: Algorithm) -> "FrozenWeights":
        """Return the frozen weights of a method; call it before training."""
        names, state = untrained_names(algorithm), algorithm.state_dict()
        return cls(frozenset(names), tensors_checksum({name: state[name] for name in names}) if names else None)


NOTHING_FROZEN = FrozenWeights()


class Checkpoint:
    """Everything that changes during training, copied after a step; another thread may write it meanwhile.

    Random numbers depend on the seed and the step alone, so no generator is saved. With ``model``, the weights of a
    model file are copied as well: low-rank changes as part of the weights, and what is frozen.
    """

    def __init__(
        self,
        *,
        run: str,
        step: int,
        algorithm: Algorithm,
        stepper: AdamStepper,
        metrics: MetricsLog,
        averager: Averager | None = None,
        frozen: FrozenWeights = NOTHING_FROZEN,
        model: bool = True,
    ) -> None:
        tensors = training_state(algorithm, stepper, frozen)
        self._model = list(weights := plain_state(algorithm)) if model else []
        tensors |= {f"model/{name}": weights[name] for name in self._model if f"algorithm/{name}" not in tensors}
        if averager:
            tensors |= {f"average/{name}": tensor for name, tensor in averager.tensors().items()}
        if metrics.rows:
            tensors["pending"] = torch.stack(metrics.rows)
        self._tensors = Snapshot(tensors)
        self._records = metrics.writer
        self._description = CheckpointDescription(
            run=run,
            step=step,
            records_size=metrics.writer.size,
            records_checksum=metrics.writer.checksum,
            terms=tuple(metrics.terms),
            average=averager.description() if averager else None,
            frozen=frozen.checksum,
        )

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of the model file."""
        copies = self._tensors.wait()
        both = _under("algorithm/", copies.items()) | _under("model/", copies.items())
        return {name: both[name] for name in self._model}

    def write(self, path: Path) -> None:
        """Write the checkpoint, after the records up to it."""
        self._records.sync()
        tensors = {name: copy for name, copy in self._tensors.wait().items() if not name.startswith("model/")}
        write_tensors(path, tensors, asdict(self._description))


def training_state(
    algorithm: Algorithm, stepper: AdamStepper, frozen: FrozenWeights = NOTHING_FROZEN
) -> dict[str, Tensor]:
    """Return all tensors that steps change, by name."""
    state = {name: tensor for name, tensor in algorithm.state_dict().items() if name not in frozen.names}
    tensors = {f"algorithm/{name}": tensor for name, tensor in state.items()}
    tensors |= {f"training/{name}": tensor for name, tensor in _training_buffers(algorithm).items()}
    for group, optimizer in stepper.optimizers.items():
        for index, values in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{group}/{index}/{name}": tensor for name, tensor in values.items()}
    return tensors


def load_checkpoint(
    path: Path,
    *,
    run: str,
    algorithm: Algorithm,
    stepper: AdamStepper,
    metrics: MetricsLog,
    averager: Averager | None = None,
    frozen: FrozenWeights = NOTHING_FROZEN,
) -> int:
    """Restore the state that :class:`Checkpoint` wrote and return its step; without a file, start at step 0.

    ``run`` is the identity of the run: the checkpoint of another run is refused.
    """
    if not path.exists():
        metrics.open(0)
        return 0
    tensors, description = read_checkpoint(path, run=run)
    if description.frozen != frozen.checksum:
        raise MessiError(
            f"{path} cannot be resumed: the weights that the frozen part of the encoder started from have changed. "
            "Restore them, or remove the file to train from the beginning."
        )
    try:
        _restore(tensors, description, algorithm=algorithm, stepper=stepper, metrics=metrics, averager=averager)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise _misfit(path, error) from error
    metrics.open(description.records_size, description.records_checksum)
    return description.step


def read_checkpoint(path: Path, *, run: str) -> tuple[dict[str, Tensor], CheckpointDescription]:
    """Read a checkpoint; the checkpoint of another run is refused."""
    tensors, values = read_tensors(path)
    try:
        description = parse_document(CheckpointDescription, values)
        if description.run != run:
            raise MessiError("It belongs to another run.")
    except MessiError as error:
        raise _misfit(path, error) from error
    return tensors, description


def _misfit(path: Path, error: Exception) -> MessiError:
    return MessiError(
        f"{path} does not fit this run: {' '.join(str(error).split()).rstrip('.')}. "
        "Restore the right file, or remove it to train from the beginning."
    )


def _restore(
    tensors: dict[str, Tensor],
    description: CheckpointDescription,
    *,
    algorithm: Algorithm,
    stepper: AdamStepper,
    metrics: MetricsLog,
    averager: Averager | None,
) -> None:
    restore_training(tensors, algorithm, stepper)
    if averager and description.average:
        averager.load(_under("average/", tensors.items()), description.average)
    metrics.terms = list(description.terms)
    metrics.rows = list(tensors["pending"].to(stepper.device)) if "pending" in tensors else []


def restore_training(tensors: Mapping[str, Tensor], algorithm: Algorithm, stepper: AdamStepper) -> None:
    """Restore what :func:`training_state` returned."""
    frozen = {name: tensor for name, tensor in algorithm.state_dict().items() if name in untrained_names(algorithm)}
    algorithm.load_state_dict({**frozen, **_under("algorithm/", tensors.items())})
    buffers = _training_buffers(algorithm)
    for name, tensor in _under("training/", tensors.items()).items():
        buffers[name].copy_(tensor)
    for group, optimizer in stepper.optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in _under(f"optimizer/{group}/", tensors.items()).items():
            index, name = key.split("/")
            state.setdefault(int(index), {})[name] = tensor
        # Its settings depend on the config and the device, which may have changed.
        settings = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": settings})


def _training_buffers(algorithm: Algorithm) -> dict[str, Tensor]:
    """Return the buffers that are not persistent and therefore in no model file."""
    persistent = algorithm.state_dict()
    return {name: buffer for name, buffer in algorithm.named_buffers() if name not in persistent}


def _under(prefix: str, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors if name.startswith(prefix)}
