"""A trained model in one file: weights, method, class names and preprocessing; loading it does not require its run."""

import typing
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from messi.algorithms.common.base import Algorithm, AlgorithmConfig, build
from messi.algorithms.common.inference import batch_size as default_batch_size
from messi.algorithms.common.inference import choose_precision
from messi.core.batch import InputSpec, Task
from messi.core.documents import parse_document
from messi.core.errors import MessiError
from messi.core.info import is_newer, version
from messi.core.precision import StatedPrecision
from messi.core.registry import UnnamedFileError
from messi.core.run_documents import Count, ExpectedAccuracy, RunDescription
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.examples import require_not_infinite
from messi.data.features import Rows, encode, require_consistent
from messi.data.image_files import read_picture, to_tensor
from messi.data.images import Images
from messi.data.placement import image_device, to_device
from messi.data.preprocess import prepare
from messi.evaluation.predict import predict
from messi.models.encoder import EncoderConfig
from messi.models.uninitialised import uninitialised


class Frame(Protocol):
    """A pandas data frame, which is slow to import."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __len__(self) -> int: ...

    def __getitem__(self, name: Any, /) -> Any: ...


Input = str | Path | Image.Image | Tensor
Inputs: TypeAlias = "Sequence[Any] | Tensor | np.ndarray | Rows | Frame"
"""Images, or rows of features."""


@dataclass(frozen=True, kw_only=True)
class ModelDescription(RunDescription):
    """The contents of a model file besides the weights: the description of the run, and how to use the model."""

    run: str | None = None
    """The identity of the run; None in files of version 0.1."""
    step: Count
    averaged_steps: tuple[Count, Count] | None = None
    task: Task
    spec: InputSpec
    expected: ExpectedAccuracy | None = None
    """The accuracy to expect on a new domain, as ``messi compare --final`` measured it on held-out domains."""


@dataclass(frozen=True)
class Answers:
    """The predictions of a model for N inputs."""

    labels: list[str]
    """N class names, each the most probable one."""
    probabilities: Tensor
    """[N, classes]"""
    experts: Tensor | None
    """[N, experts] router weights, or None if the method has no router."""


@dataclass(frozen=True)
class Model:
    """A trained model, ready to predict."""

    algorithm: Algorithm
    classes: tuple[str, ...]
    spec: InputSpec
    description: ModelDescription

    @property
    def expected_accuracy(self) -> ExpectedAccuracy | None:
        """The accuracy to expect on a new domain; None unless the model was trained by ``messi compare --final``."""
        return self.description.expected

    def predict(self, inputs: Inputs, *, batch_size: int | None = None) -> Answers:
        """Predict images or features.

        Images are files, PIL images or uint8 tensors [channels, height, width]. Features are rows of raw numbers in the
        order of training (a tensor, an array or lists), of which NaN is a missing value, or a data frame with the
        columns of training in any order; the model encodes and scales them itself.
        """
        self._require_several(inputs)
        if len(inputs) == 0:
            raise MessiError("There is nothing to predict; give at least one image or row of features.")
        device = next(self.algorithm.parameters()).device
        size = batch_size or default_batch_size(device)
        if len(self.spec.shape) == 1:
            batches: Iterable[Tensor] = (batch.to(device) for batch in self.encode(inputs).split(size))
        elif isinstance(inputs, Sequence | Tensor):
            batches = (
                self.prepare_images(inputs[start : start + size], device) for start in range(0, len(inputs), size)
            )
        else:
            raise MessiError("This model takes images; give files, PIL images or uint8 tensors, not rows of features.")
        output = predict(self.algorithm, batches)
        probabilities = output.logits.cpu().softmax(-1)
        if not probabilities.isfinite().all():
            place = int((~probabilities.isfinite().all(-1)).nonzero()[0])
            raise MessiError(
                f"The prediction for input {place + 1} of {len(inputs)} is not a number: the weights or the input have "
                "values that are infinite or not a number. Give finite inputs, or train again."
            )
        return Answers(
            labels=[self.classes[index] for index in probabilities.argmax(-1).tolist()],
            probabilities=probabilities,
            experts=None if output.routing is None else output.routing.cpu(),
        )

    def encode(self, inputs: Inputs) -> Tensor:
        """Return raw features as the network takes them: a finite float tensor [N, F]."""
        if len(self.spec.shape) != 1:
            raise MessiError("This model takes images; only features are encoded.")
        self._require_several(inputs)
        rows = self._rows(inputs)
        return encode(rows.values, self.spec, rows.columns)

    def _rows(self, inputs: Inputs) -> Rows:
        """Return raw features."""
        if isinstance(inputs, Rows):
            return inputs
        if isinstance(inputs, Tensor):
            features = inputs.cpu()
        elif isinstance(inputs, Sequence) and any(isinstance(row, Input) for row in inputs):
            features = torch.stack([self._raw(row) for row in inputs])
        elif isinstance(inputs, Sequence | np.ndarray):
            features = self._numbers(inputs)
        else:
            from messi.data.frames import read_frame  # noqa: PLC0415 (slow to import, and needed only here)

            return read_frame(inputs, self.spec.columns)
        if features.dim() == 2:  # another shape is refused when it is encoded
            require_not_infinite(features, "The input")
        return Rows(features if features.is_floating_point() else features.double(), ())

    def _require_several(self, inputs: Any) -> None:
        """Raise unless there may be several inputs, and their number is known."""
        several = isinstance(inputs, Sequence | Tensor | np.ndarray) and not isinstance(inputs, str | bytes)
        if not (several or hasattr(inputs, "columns")) or getattr(inputs, "ndim", 1) == 0:
            raise MessiError(f"This model takes {self._accepted}, but the input is of the type {_type_name(inputs)}.")

    @property
    def _accepted(self) -> str:
        if len(self.spec.shape) == 1:
            number = len(self.spec.columns) or self.spec.shape[0]
            return f"rows of {number} features as a tensor, an array, a list of lists of numbers or a data frame"
        return "images as a list of files, PIL images or uint8 tensors"

    def _numbers(self, rows: Any) -> Tensor:
        """Return an array, or lists of numbers, as a tensor."""
        kind = np.float32 if getattr(rows, "dtype", None) == np.float32 else np.float64
        try:
            # torch takes no arrays that are read-only or have reversed rows.
            return torch.from_numpy(np.require(rows, kind, ["C", "W"]))
        except (ValueError, TypeError, OverflowError) as error:
            reason = "the input has other values, or rows of several lengths"
            raise MessiError(f"This model takes {self._accepted}, but {reason}.") from error

    def read(self, path: str | Path) -> Tensor:
        """Read an image file with the number of channels that the model takes."""
        return read_picture(Path(path), channels=self._channels)

    def prepare_images(self, images: Sequence[Any] | Tensor, device: torch.device) -> Tensor:
        """Return images as the encoder takes them; they are prepared on the device if kernels run there."""
        raw = [self._raw(image) for image in images]
        place = image_device(device)
        there = to_device(images, place) if isinstance(images, Tensor) else [to_device(image, place) for image in raw]
        return to_device(prepare(Images.pack(there).to(place), self.spec), device)

    @property
    def _channels(self) -> int:
        if len(self.spec.shape) == 1:
            raise MessiError(f"This model takes {self.spec.shape[0]} features, not images; call predict with tensors.")
        return self.spec.shape[0]

    def _raw(self, image: Any) -> Tensor:
        if isinstance(image, str | Path):
            return self.read(image)
        if isinstance(image, Image.Image):
            return to_tensor(image, channels=self._channels)
        if not isinstance(image, Tensor):
            raise MessiError(f"This model takes {self._accepted}, but an input is of the type {_type_name(image)}.")
        features, channels = len(self.spec.shape) == 1, self.spec.shape[:1]
        if image.dim() != len(self.spec.shape) or not (features or image.shape[:1] == channels):
            raise MessiError(f"An input must have the shape {self.spec.shape}, but has {tuple(image.shape)}.")
        if not features and image.dtype != torch.uint8:
            raise MessiError(f"An image must be uint8 (0 to 255), but is {image.dtype}.")
        return image


def _type_name(value: Any) -> str:
    return type(value).__name__


def save_model(path: Path, weights: dict[str, Tensor], description: ModelDescription) -> None:
    """Write the model file."""
    write_tensors(path, weights, asdict(description))


def load(
    path: str | Path,
    *,
    device: str | torch.device = "cpu",
    precision: StatedPrecision | None = None,
    algorithm: str | Path | None = None,
) -> Model:
    """Load the selected model of a run folder, or a model file.

    The file may come from an untrusted source: no code outside messi is imported unless the caller names its file.

    Args:
        path: the run folder or the model file.
        device: the device of the model.
        precision: the number format of predictions, "float32" or "bfloat16"; by default that which the run stated, or
            else that of the device.
        algorithm: the file with the method if it is the user's own.

    """
    path = Path(path)
    tensors, description = read_model(RunDir(path)) if path.is_dir() else read_model_file(path)
    try:
        with naming_versions(path, description.version):
            model = _rebuilt(tensors, description, files=() if algorithm is None else (algorithm,))
    except MessiError:
        raise
    except Exception as error:  # a network with inconsistent settings may raise anything
        raise _misfit(path, description.version, error) from error
    model.algorithm.precision = choose_precision(
        EncoderConfig.from_dict(description.config["encoder"]),
        torch.device(device),
        precision or description.config.get("precision"),
    )
    model.algorithm.to(device)
    return model


def read_weights(folder: RunDir, *, step: int) -> dict[str, Tensor]:
    """Return the weights of the selected step of a run, which must be ``step``."""
    tensors, description = read_model(folder)
    if description.step != step:
        raise MessiError(
            f"{folder.model} has the weights of step {description.step}, but step {step} was selected. Restore the "
            f"right file, or delete {folder.path} and train again."
        )
    return tensors


def read_model(folder: RunDir) -> tuple[dict[str, Tensor], ModelDescription]:
    """Read the model of a run; a model of another run is refused."""
    tensors, description = _described(folder.model, *read_tensors(folder.find_model()))
    if folder.state() != "new":
        folder.require_whole(folder.model)
        if description.run not in (None, folder.identity()):
            raise MessiError(f"{folder.model} does not belong to {folder.description}; restore the right file.")
    return tensors, description


def read_model_file(path: Path) -> tuple[dict[str, Tensor], ModelDescription]:
    """Read a model outside of its run folder."""
    return _described(path, *read_tensors(path))


def _described(
    path: Path, tensors: dict[str, Tensor], values: dict[str, Any]
) -> tuple[dict[str, Tensor], ModelDescription]:
    """Return the tensors and the typed description."""
    if "task" not in values:
        raise MessiError(f"{path} is not a model file; give the folder of a run or its model.safetensors.")
    try:
        return tensors, parse_document(ModelDescription, values)
    except MessiError as error:
        raise _misfit(path, values.get("version"), error) from error


@contextmanager
def naming_versions(path: Path, written_by: str) -> Iterator[None]:
    """State the version that wrote a model in an error about its settings, if that version is newer than this one."""
    try:
        yield
    except UnnamedFileError:  # no other version would help
        raise
    except MessiError as error:
        if not is_newer(written_by):
            raise
        raise _misfit(path, written_by, error) from error


def _misfit(path: Path, written_by: object, error: Exception) -> MessiError:
    reason = " ".join(str(error).split()).rstrip(".")
    return MessiError(
        f"{path} was written by messi {written_by} and does not fit messi {version()}: "
        f"{reason}{'' if reason.endswith('?') else '.'} Use the version that wrote it, or train again."
    )


def _rebuilt(tensors: dict[str, Tensor], description: ModelDescription, files: Collection[str | Path]) -> Model:
    if len(description.classes) != description.task.num_classes:
        raise ValueError(f"it names {len(description.classes)} classes for {description.task.num_classes} outputs")
    if description.config.get("precision") not in (None, *typing.get_args(StatedPrecision)):
        raise ValueError(f"it states the precision {description.config['precision']!r}")
    algorithm_config = AlgorithmConfig.from_dict(description.config["algorithm"], files=files)
    encoder = EncoderConfig.from_dict(description.config["encoder"]).without_weights()
    spec, expected = description.spec, encoder.input_spec(description.spec.shape)
    if not spec.shape == description.task.input_shape == expected.shape:
        raise ValueError(f"the inputs of its network are not of the shape {spec.shape}")
    if len(spec.shape) == 1:
        require_consistent(spec)
    elif not len(spec.mean) == len(spec.std) == len(expected.mean):
        raise ValueError(f"inputs of the shape {spec.shape} need {len(expected.mean)} means and standard deviations")
    with uninitialised():
        algorithm = build(algorithm_config, task=description.task, encoder=encoder)
    algorithm.load_state_dict(tensors)
    return Model(algorithm.eval(), description.classes, description.spec, description)
