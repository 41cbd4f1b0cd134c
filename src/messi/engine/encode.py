"""Encode all images once, for runs that do not train their encoder (``--tune head``).

Features are computed as in prediction: same batches, same precision. The features of an image depend neither on labels
nor on other images, so encoding the target as well reveals nothing about it; the sealed data returns them only after
training and selection.
"""

import functools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from messi.algorithms.common.inference import batch_size, low_precision
from messi.core.batch import InputSpec
from messi.core.errors import MessiError
from messi.core.seeding import generator
from messi.core.tensorfile import tensors_checksum
from messi.data.augment import Parameters, draw_parameters, prepare_augmented
from messi.data.examples import Examples
from messi.data.feature_files import Encoding, FeatureFiles
from messi.data.images import Images
from messi.data.placement import fetch, image_device, place, to_device
from messi.data.preprocess import prepare
from messi.data.progress import DataProgress, LogProgress
from messi.engine.async_writer import AsyncWriter, Snapshot
from messi.engine.config import RunConfig
from messi.models.encoder import Encoder


def encode_images(
    config: RunConfig,
    examples: Examples,
    encoder: Encoder,
    spec: InputSpec,
    device: torch.device,
    precision: str,
    progress: DataProgress | None = None,
) -> Tensor:
    """Return the features of all images in all views [views, N, width], from the cache as far as possible.

    ``precision`` is that of prediction.
    """
    if not isinstance(examples.inputs, Images):
        raise MessiError("tune 'head' encodes images, but the data has features; omit --tune.")
    files = FeatureFiles(
        Encoding(
            data=examples.fingerprint,
            backbone=str(config.encoder.backbone),
            weights=tensors_checksum(encoder.network.state_dict()),
            spec=spec,
            augmentation=config.training.augmentation,
            views=config.encoder.views,
            precision=precision,
            images=len(examples),
            width=encoder.width,
        )
    )
    features = files.read()
    if features is not None:
        return features
    with files.locked():
        _complete(files, place(examples.inputs, device), encoder, device, progress or LogProgress())
    features = files.read()
    if features is None:
        raise MessiError(f"The features in {files.folder} are damaged; delete the folder to have them computed again.")
    return features


def _complete(
    files: FeatureFiles, images: Images, encoder: Encoder, device: torch.device, progress: DataProgress
) -> None:
    """Encode what is missing; another process may have encoded it while this one waited."""
    missing = files.missing()
    if not missing:
        return
    files.require_space(len(missing))
    number = sum(len(files.rows(part)) for part in missing) * files.encoding.views
    progress.started(f"encoding {number:,} images with {files.encoding.backbone} into {files.folder}", number)
    was_training = encoder.training
    encoder.eval().to(device)
    try:
        with AsyncWriter() as writer:
            for part, features in _encode(files, missing, images, encoder, device):
                writer.submit(functools.partial(_write, files, part, Snapshot({"features": features})))
                progress.advanced(features.shape[0] * features.shape[1])
    finally:
        encoder.train(was_training)
        progress.finished()


def _write(files: FeatureFiles, part: int, copied: Snapshot) -> None:
    files.write(part, copied.wait()["features"])


def _encode(
    files: FeatureFiles, parts: Sequence[int], images: Images, encoder: Encoder, device: torch.device
) -> Iterator[tuple[int, Tensor]]:
    """Yield the features [views, n, width] of each part; the batches of a part do not depend on the other parts."""
    size, views, spec = batch_size(device), range(files.encoding.views), files.encoding.spec
    preparing = image_device(device)
    batches = [
        (part, view, start) for part in parts for view in views for start in range(0, len(files.rows(part)), size)
    ]
    chosen = (images.select(_rows(files, part, start, size)) for part, _, start in batches)
    found: list[Tensor] = []
    for (part, view, start), raw in zip(batches, fetch(chosen, preparing), strict=True):
        if start == 0:
            parameters = _parameters(files, part, view, images, preparing)
        if parameters is None:
            inputs = prepare(raw, spec)
        else:
            inputs = prepare_augmented(raw, parameters[start : start + size], spec)
        with torch.inference_mode(), low_precision(device, files.encoding.precision):
            found.append(encoder(to_device(inputs, device)).float())
        if view == views[-1] and start + size >= len(files.rows(part)):
            yield part, torch.cat(found).unflatten(0, (len(views), -1))
            found = []


def _rows(files: FeatureFiles, part: int, start: int, size: int) -> slice:
    rows = files.rows(part)[start : start + size]
    return slice(rows.start, rows.stop)


def _parameters(files: FeatureFiles, part: int, view: int, images: Images, device: torch.device) -> Parameters | None:
    """Return how the images of a part are augmented, as a function of image and view; None for the plain view."""
    if view == 0:
        return None
    rows = files.rows(part)
    sizes = images.sizes[rows.start : rows.stop]
    return draw_parameters(sizes, generator("encode", view, part)).map(lambda values: to_device(values, device))
