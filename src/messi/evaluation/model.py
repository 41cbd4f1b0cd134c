"""A trained model in one file: weights, method, class names and preprocessing; loaded anywhere, without the run."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from messi.algorithms.common.base import Algorithm, AlgorithmConfig, build
from messi.algorithms.common.inference import batch_size as default_batch_size
from messi.core.batch import InputSpec, Task
from messi.core.documents import parse_document
from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.run_documents import Count, RunDescription
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.examples import require_finite
from messi.data.image_files import read_picture, to_tensor
from messi.data.images import Images
from messi.data.placement import to_device
from messi.data.preprocess import prepare
from messi.evaluation.predict import predict
from messi.models.encoder import EncoderConfig
from messi.models.uninitialised import uninitialised

Input = str | Path | Image.Image | Tensor


@dataclass(frozen=True, kw_only=True)
class ModelDescription(RunDescription):
    """What a model file says besides its weights: all of the run that they come from, and how to use them."""

    run: str | None = None
    """The identity of the run; None in files of version 0.1."""
    step: Count
    averaged_steps: tuple[Count, Count] | None = None
    task: Task
    spec: InputSpec


@dataclass(frozen=True)
class Answers:
    """What a model says of N images."""

    labels: list[str]
    """N class names, the most probable of each."""
    probabilities: Tensor
    """[N, classes]"""
    experts: Tensor | None
    """[N, experts] router weights, or None when the method has no router."""


@dataclass(frozen=True)
class Model:
    """A trained model, ready to predict."""

    algorithm: Algorithm
    classes: tuple[str, ...]
    spec: InputSpec
    description: ModelDescription

    def predict(self, images: Sequence[Input] | Tensor, *, batch_size: int | None = None) -> Answers:
        """Predict image files, PIL images, uint8 tensors [channels, height, width] or features [F]."""
        if len(images) == 0:
            raise MessiError("There is nothing to predict; give at least one image.")
        if len(self.spec.shape) == 1:
            images = self._features(images)
        device = next(self.algorithm.parameters()).device
        size = batch_size or default_batch_size(device)
        batches = (images[start : start + size] for start in range(0, len(images), size))
        output = predict(self.algorithm, (self._ready(batch, device) for batch in batches))
        probabilities = output.logits.cpu().softmax(-1)
        if not probabilities.isfinite().all():
            place = int((~probabilities.isfinite().all(-1)).nonzero()[0])
            raise MessiError(
                f"The model's answer to input {place + 1} of {len(images)} is not a number: its weights or the input "
                "hold values that are infinite or not a number. Give finite inputs, or train anew."
            )
        return Answers(
            labels=[self.classes[index] for index in probabilities.argmax(-1).tolist()],
            probabilities=probabilities,
            experts=None if output.routing is None else output.routing.cpu(),
        )

    def _features(self, inputs: Sequence[Input] | Tensor) -> Tensor:
        features = torch.stack([self._raw(row) for row in inputs])
        if not features.is_floating_point():
            raise MessiError(f"Features must be floats, but are {features.dtype}; convert them with .float().")
        require_finite(features, "The input")
        return features

    def read(self, path: str | Path) -> Tensor:
        """Read an image file as this model wants it."""
        return read_picture(Path(path), channels=self._channels)

    def _ready(self, inputs: Sequence[Input] | Tensor, device: torch.device) -> Tensor:
        """Return inputs as the encoder takes them; all but the reading of files is done on the device."""
        raw = [self._raw(image) for image in inputs]
        if len(self.spec.shape) == 1:
            return torch.stack(raw).to(device)
        there = to_device(inputs, device) if isinstance(inputs, Tensor) else [to_device(image, device) for image in raw]
        return prepare(Images.pack(there).to(device), self.spec)

    @property
    def _channels(self) -> int:
        if len(self.spec.shape) == 1:
            raise MessiError(
                f"This model takes {self.spec.shape[0]} features and no pictures; call predict with tensors."
            )
        return self.spec.shape[0]

    def _raw(self, image: Input) -> Tensor:
        if isinstance(image, str | Path):
            return self.read(image)
        if isinstance(image, Image.Image):
            return to_tensor(image, channels=self._channels)
        wanted = self.spec.shape if len(self.spec.shape) == 1 else self.spec.shape[:1]
        if image.dim() != len(self.spec.shape) or image.shape[: len(wanted)] != wanted:
            raise MessiError(f"An input must look like {self.spec.shape}, but has the shape {tuple(image.shape)}.")
        if len(self.spec.shape) == 3 and image.dtype != torch.uint8:
            raise MessiError(f"An image must be uint8 (0 to 255), but is {image.dtype}.")
        return image


def save_model(path: Path, weights: dict[str, Tensor], description: ModelDescription) -> None:
    """Write the model file."""
    write_tensors(path, weights, asdict(description))


def load(path: str | Path, *, device: str | torch.device = "cpu", algorithm: str | Path | None = None) -> Model:
    """Load the selected model of a run folder, or a model file.

    Nothing outside of messi is imported, whatever the file says, unless the caller names it.

    Args:
        path: the run folder or the model file.
        device: where the model goes.
        algorithm: the file with the method, where that is not one of messi's own.

    """
    path = Path(path)
    tensors, description = read_model(RunDir(path)) if path.is_dir() else _described(path, *read_tensors(path))
    try:
        model = _rebuilt(tensors, description, files=() if algorithm is None else (algorithm,))
    except MessiError:
        raise
    except Exception as error:  # a network of settings that do not go together may raise anything
        raise _misfit(path, description.version, error) from error
    model.algorithm.to(device)
    return model


def read_weights(folder: RunDir, *, step: int) -> dict[str, Tensor]:
    """Return the weights that a run has selected, those after ``step``."""
    tensors, description = read_model(folder)
    if description.step != step:
        raise MessiError(
            f"{folder.model} holds the weights after step {description.step} and not those after step {step}, which "
            f"was selected. Restore the right file, or delete {folder.path} and train anew."
        )
    return tensors


def read_model(folder: RunDir) -> tuple[dict[str, Tensor], ModelDescription]:
    """Read the model of a run, and make sure that it is this run's."""
    tensors, description = _described(folder.model, *read_tensors(folder.find_model()))
    if folder.state() != "new":
        folder.require_whole(folder.model)
        if description.run not in (None, folder.identity()):
            raise MessiError(f"{folder.model} belongs to another run than {folder.description}; restore the right one.")
    return tensors, description


def _described(
    path: Path, tensors: dict[str, Tensor], values: dict[str, Any]
) -> tuple[dict[str, Tensor], ModelDescription]:
    """Return the same with the values typed."""
    if "task" not in values:
        raise MessiError(f"{path} is no model file; give the folder of a run or its model.safetensors.")
    try:
        return tensors, parse_document(ModelDescription, values)
    except MessiError as error:
        raise _misfit(path, values.get("version"), error) from error


def _misfit(path: Path, written_by: object, error: Exception) -> MessiError:
    return MessiError(
        f"{path} was written by messi {written_by} and does not fit messi {version()}: "
        f"{' '.join(str(error).split()).rstrip('.')}. Use the version that wrote it, or train anew."
    )


def _rebuilt(tensors: dict[str, Tensor], description: ModelDescription, files: Collection[str | Path]) -> Model:
    if len(description.classes) != description.task.num_classes:
        raise ValueError(f"it names {len(description.classes)} classes for {description.task.num_classes} outputs")
    algorithm_config = AlgorithmConfig.from_dict(description.config["algorithm"], files=files)
    encoder = EncoderConfig.from_dict(description.config["encoder"]).without_weights()
    spec, expected = description.spec, encoder.input_spec(description.spec.shape)
    if not spec.shape == description.task.input_shape == expected.shape:
        raise ValueError(f"the inputs of its network are not of the shape {spec.shape}")
    if not len(spec.mean) == len(spec.std) == len(expected.mean):
        raise ValueError(f"inputs of the shape {spec.shape} need {len(expected.mean)} means and standard deviations")
    with uninitialised():
        algorithm = build(algorithm_config, task=description.task, encoder=encoder)
    algorithm.load_state_dict(tensors)
    return Model(algorithm.eval(), description.classes, description.spec, description)
