"""A trained model in one file: weights, method, class names and preprocessing; loaded anywhere, without the run."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from messi.algorithms._base import Algorithm, AlgorithmConfig, build
from messi.algorithms._inference import batch_size as default_batch_size
from messi.core.batch import InputSpec, Task
from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.examples import require_finite
from messi.data.images import Images
from messi.data.pictures import read_picture, to_tensor
from messi.data.placement import sent
from messi.data.preprocess import prepare
from messi.evaluation.predict import predict
from messi.models.encoder import EncoderConfig

Input = str | Path | Image.Image | Tensor


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
    description: dict[str, Any]
    """The whole config of the run, the step, the source and target domains, the version."""

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
        there = sent(inputs, device) if isinstance(inputs, Tensor) else [sent(image, device) for image in raw]
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


def save_model(
    path: Path, weights: dict[str, Tensor], *, task: Task, spec: InputSpec, description: dict[str, Any]
) -> None:
    """Write the model file; ``description`` holds the run's config, its classes and whatever else belongs to it."""
    write_tensors(path, weights, {**description, "task": asdict(task), "spec": asdict(spec)})


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Model:
    """Load the selected model of a run folder, or a model file."""
    path = Path(path)
    tensors, description = read_tensors(RunDir(path).model if path.is_dir() else path)
    if "task" not in description:
        raise MessiError(f"{path} is no model file; give the folder of a run or its model.safetensors.")
    try:
        model = _rebuilt(tensors, description)
    except (KeyError, TypeError, RuntimeError) as error:
        raise MessiError(
            f"{path} was written by messi {description.get('version')} and does not fit messi {version()}: "
            f"{' '.join(str(error).split())}. Use the version that wrote it, or train anew."
        ) from error
    model.algorithm.to(device)
    return model


def _rebuilt(tensors: dict[str, Tensor], description: dict[str, Any]) -> Model:
    config = description["config"]
    algorithm = build(
        AlgorithmConfig.from_dict(config["algorithm"]),
        task=Task(**_with_tuples(description["task"])),
        encoder=EncoderConfig.from_dict(config["encoder"]).without_weights(),
    )
    algorithm.load_state_dict(tensors)
    spec = InputSpec(**_with_tuples(description["spec"]))
    return Model(algorithm.eval(), tuple(description["classes"]), spec, description)


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, Iterable) else value for key, value in values.items()}
