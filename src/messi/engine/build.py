"""The parts of a run, from its config: device, split, data in place, sampler, model, optimizer."""

import dataclasses
from collections.abc import Sequence

import torch

from messi.algorithms.common.base import Algorithm, build
from messi.core.batch import InputSpec, Task
from messi.core.errors import MessiError
from messi.core.info import environment, version
from messi.core.run_documents import RunDescription
from messi.core.rundir import RunDir
from messi.core.seeding import derive_seed
from messi.core.text import first_few
from messi.data.examples import Examples, domain_indices
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.placement import place
from messi.data.progress import LogProgress
from messi.data.sampling import Sampler
from messi.data.sealed_data import SealedData
from messi.data.seen_examples import seen_checksum, seen_digests
from messi.data.splits import Split, make_split, official_split
from messi.engine.averaging.swad import Averager
from messi.engine.config import RunConfig, Settings
from messi.engine.loop import RunParts
from messi.engine.metrics_log import MetricsLog
from messi.engine.observers import Observer, Stopwatch, TensorBoard
from messi.engine.stepper import AdamStepper
from messi.evaluation.selection import RULES


def prepare(
    config: RunConfig,
    examples: Examples,
    folder: RunDir,
    device: torch.device,
    observers: Sequence[Observer] = (),
    *,
    capture: bool = True,
) -> RunParts:
    """Build the parts of a run; ``config`` is a resolved one. Nothing is written."""
    settings, split = config.settings, split_of(config, examples)
    validation = RULES[settings.selection].role
    if not split.of(validation):
        raise MessiError(
            f"selection '{settings.selection}' has no data to read in this split; choose another with --selection."
        )
    _note_unseen_classes(examples, split)
    spec = config.encoder.input_spec(examples.input_shape)
    sealed = SealedData(placed(examples, device), split)
    loader = loader_of(config, sealed, spec, device, _sampler(config, examples, split))
    task = Task(input_shape=spec.shape, num_classes=len(examples.classes), num_domains=len(split.train))
    torch.manual_seed(derive_seed("initialise", config.seed))
    algorithm = build(config.algorithm, task=task, encoder=config.encoder).to(device)
    stopwatch, seen = Stopwatch(device), seen_digests(examples, split)
    tensorboard = TensorBoard(folder.path / "tensorboard", validation)
    return RunParts(
        folder=folder,
        config=settings,
        seed=config.seed,
        algorithm=algorithm,
        stepper=AdamStepper(
            algorithm,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            flatness=settings.flatness,
            radius=settings.flatness_radius,
            alpha=settings.sagm_alpha,
        ),
        averager=_averager(settings, algorithm),
        loader=loader,
        ledger=MetricsLog(folder.records, [tensorboard, stopwatch, *observers]),
        stopwatch=stopwatch,
        task=task,
        capture=capture,
        seen=seen,
        description=_description(config, examples, split, seen_checksum(seen)),
    )


def _note_unseen_classes(examples: Examples, split: Split) -> None:
    """Say which classes of the target no training example shows: no model can learn them."""
    trained = set(examples.labels[torch.cat(list(split.train.values()))].tolist())
    unseen: dict[str, list[str]] = {}
    for domain, indices in split.target.items():
        for label in sorted(set(examples.labels[indices].tolist()) - trained):
            unseen.setdefault(examples.classes[label], []).append(examples.domain_names[domain])
    if unseen:
        names = [f"'{label}' (in {first_few(domains)})" for label, domains in unseen.items()]
        LogProgress().noted(
            f"Classes that occur in the target but in no training example, so that the model cannot learn them: "
            f"{first_few(names, 10)}."
        )


def split_of(config: RunConfig, examples: Examples) -> Split:
    """Return the roles of the examples in a run; ``config`` is a resolved one."""
    settings = config.settings
    if settings.split == "official":
        if config.target or config.sources:
            raise MessiError("split 'official' says itself which domains are trained on; leave --target and --sources.")
        return official_split(examples)
    targets, sources = (domain_indices(examples, names) for names in (config.target, config.sources))
    if both := set(config.target) & set(config.sources):
        raise MessiError(f"A domain cannot be source and target: {', '.join(sorted(both))}.")
    return make_split(
        examples,
        targets,
        sources=sources or None,
        kind=settings.split,
        fraction=settings.validation_fraction,
        target_part=settings.target_part,
        seed=config.seed,
    )


def loader_of(
    config: RunConfig, sealed: SealedData, spec: InputSpec, device: torch.device, sampler: Sampler | None = None
) -> Loader:
    """Return what reads the data of a run, the same way in training and when its model is measured again."""
    return Loader(
        data=sealed,
        spec=spec,
        device=device,
        seed=config.seed,
        sampler=sampler,
        augmentation=config.settings.augmentation,
        validation_augmentation=config.settings.validation_augmentation,
    )


def placed(examples: Examples, device: torch.device) -> Examples:
    """Return the examples with their pixels as near to the device as they fit."""
    inputs = examples.inputs
    return dataclasses.replace(examples, inputs=place(inputs, device)) if isinstance(inputs, Images) else examples


def _averager(settings: Settings, algorithm: Algorithm) -> Averager | None:
    if settings.averaging == "none":
        return None
    return Averager(
        algorithm,
        optimum_patience=settings.swad_optimum_patience,
        overfit_patience=settings.swad_overfit_patience,
        tolerance=settings.swad_tolerance,
    )


def _sampler(config: RunConfig, examples: Examples, split: Split) -> Sampler:
    settings, members = config.settings, list(split.train.values())
    return Sampler(
        members=members,
        labels=[examples.labels[indices] for indices in members],
        kind=settings.sampling,
        per_domain=settings.batch_per_domain,
        domains_per_batch=settings.domains_per_batch,
        seed=config.seed,
    )


def pick_device(name: str | None) -> torch.device:
    """Return the named device, or a GPU if there is one."""
    unknown = MessiError(f"There is no device '{name}'; use 'cpu', 'cuda' or 'cuda:1'.")
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise unknown from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise MessiError("No CUDA device is available here; use --device cpu.")
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= max(torch.cuda.device_count(), 1):
        raise unknown
    return device


def _description(config: RunConfig, examples: Examples, split: Split, seen: str) -> RunDescription:
    return RunDescription(
        config=config.to_dict(),
        version=version(),
        data=examples.fingerprint,
        seen=seen,
        classes=examples.classes,
        sources=tuple(examples.domain_names[domain] for domain in split.train),
        target=tuple(examples.domain_names[domain] for domain in split.target),
        environment=environment(),
    )
