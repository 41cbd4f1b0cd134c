"""The examples that a service compares inputs with: ``novelty.safetensors`` in the run folder.

They are computed once, when a run is first served, from the validation part of its source domains, and travel with the
folder. A plan of a thousand runs does not pay for them.
"""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from messi.core.documents import parse_document
from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.records import Role
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, tensors_checksum, write_tensors
from messi.data.datasets.common.base import DataConfig
from messi.data.loader import Loader
from messi.diagnostics.novelty import Bank, NoveltyQuality, measure
from messi.diagnostics.sampling import spaced
from messi.engine.evaluate import reopen
from messi.evaluation.model import Model
from messi.evaluation.predict import predict_and_encode
from messi.models.encoder import Encoder

PER_DOMAIN, IN_ALL = 500, 2_000
"""Maximum number of examples per domain, and of all source domains; evenly spaced if there are more."""
_CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class NoveltyDescription:
    """The contents of ``novelty.safetensors`` besides the bank."""

    version: str
    model: str
    """The checksum of the weights that the bank belongs to."""
    names: tuple[str, ...]
    threshold: float
    quality: NoveltyQuality


@dataclass(frozen=True)
class KnownDomains:
    """The bank of a model, and how far to trust it."""

    bank: Bank
    names: tuple[str, ...]
    threshold: float
    quality: NoveltyQuality


class NoBankError(MessiError):
    """Why a model is served without a warning."""


def known_domains(
    path: Path, model: Model, *, algorithm: Path | None = None, data: DataConfig | None = None
) -> KnownDomains:
    """Return the bank of the model of a run, which is built and saved if the run has none yet.

    ``data`` is where the data of the run are now, if they were moved.

    Raises:
        NoBankError: if there is neither a bank nor the data to build it.

    """
    folder = RunDir(path if path.is_dir() else path.resolve().parent)
    weights = tensors_checksum(model.algorithm.state_dict())
    if folder.novelty.exists():
        return _read(folder.novelty, weights, model)
    try:
        device = str(next(model.algorithm.parameters()).device)
        _, loader = reopen(path, device=device, algorithm=algorithm, data=data)
    except MessiError as error:
        advice = "serve the run folder, with the data of the run unchanged in its place or named with --data."
        raise NoBankError(error.problem, advice if error.advice else "") from error
    found = _build(model, loader)
    description = NoveltyDescription(
        version=version(), model=weights, names=found.names, threshold=found.threshold, quality=found.quality
    )
    tensors = {"points": found.bank.points, "domains": found.bank.domains}
    write_tensors(folder.novelty, tensors, asdict(description))
    return found


def _build(model: Model, loader: Loader) -> KnownDomains:
    sealed = loader.data
    domains = sealed.domains("source_val")
    number = sum(len(sealed.indices("source_val", domain)) for domain in domains)
    if number < 2:
        raise NoBankError("The run has no validation data of its source domains to compare inputs with.")
    most = max(min(PER_DOMAIN, IN_ALL // len(domains)), 1)
    logging.getLogger("messi").warning(
        "Encoding up to %s examples per domain to compare inputs with; this is done once per run.", most
    )
    names = tuple(sealed.domain_names[domain] for domain in domains)
    parts = list(_points(model, loader, "source_val", most))
    bank = Bank(torch.cat(parts), torch.cat([torch.full((len(part),), d) for d, part in enumerate(parts)]))
    targets = [sealed.domain_names[domain] for domain in sealed.domains("target")]
    most = max(min(PER_DOMAIN, IN_ALL // max(len(targets), 1)), 1)
    quality = measure(bank, names, dict(zip(targets, _points(model, loader, "target", most), strict=True)))
    return KnownDomains(bank, names, bank.threshold(), quality)


def points_of(model: Model, inputs: Tensor, features: Tensor | None) -> Tensor | None:
    """Return the points [N, D] by which inputs of the encoder are compared: rows themselves, images by their features.

    They are None for images and a method that does not expose the features of one encoder.
    """
    if len(model.spec.shape) == 1:
        return inputs.float().cpu()
    return None if features is None else functional.normalize(features.float(), dim=1).cpu()


def _points(model: Model, loader: Loader, role: Role, most: int) -> Iterator[Tensor]:
    """Yield the points of evenly spaced examples of every domain in a role."""
    for domain in loader.data.domains(role):
        indices = loader.data.indices(role, domain)
        chunks = indices[spaced(len(indices), most)].split(_CHUNK)
        yield torch.cat([_points_of_chunk(model, inputs) for inputs in loader.inputs(chunks)])


def _points_of_chunk(model: Model, inputs: Tensor) -> Tensor:
    _, features = predict_and_encode(model.algorithm, [inputs])
    points = points_of(model, inputs, features)
    if points is None:
        raise NoBankError("The method of this model does not expose the features of one encoder.")
    return points


def _read(path: Path, weights: str, model: Model) -> KnownDomains:
    tensors, values = read_tensors(path)
    wrong = MessiError(
        f"{path} does not belong to this model, or another version of messi wrote it; delete it: it is written again "
        "from the run's data."
    )
    try:
        description = parse_document(NoveltyDescription, values)
        points, domains = tensors["points"], tensors["domains"]
    except (KeyError, MessiError) as error:
        raise wrong from error
    fits = (
        description.model == weights
        and points.dim() == 2
        and points.dtype == torch.float32
        and len(points) > 1
        and domains.dtype == torch.long
        and domains.shape == points.shape[:1]
        and points.isfinite().all()
        and points.shape[1] in _widths(model)
        and 0 <= int(domains.min()) <= int(domains.max()) < len(description.names)
        and set(description.names) <= set(model.description.sources)
    )
    if not fits:
        raise wrong
    return KnownDomains(Bank(points, domains), description.names, description.threshold, description.quality)


def _widths(model: Model) -> set[int]:
    """Return how many numbers a point of the model may have."""
    shape = model.spec.shape
    return set(shape) if len(shape) == 1 else {m.width for m in model.algorithm.modules() if isinstance(m, Encoder)}
