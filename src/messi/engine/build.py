"""Build the parts of training and of a run from a config: device, split, data, sampler, model, optimizer."""

import dataclasses
import re
from collections.abc import Sequence

import torch

from messi.algorithms.common.base import Algorithm, build
from messi.algorithms.common.inference import choose_precision
from messi.core.batch import InputSpec, Task
from messi.core.errors import MessiError
from messi.core.hardware import hardware_of, local_devices
from messi.core.info import environment, version
from messi.core.precision import Precision
from messi.core.processes import Processes, launched, local_rank
from messi.core.run_documents import RunDescription
from messi.core.rundir import RunDir
from messi.core.seeding import derive_seed
from messi.core.tensorfile import tensors_checksum
from messi.core.text import first_few
from messi.data.examples import Examples, domain_indices
from messi.data.features import constant_features, encoded, fit_spec, row_numbers
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.placement import place
from messi.data.progress import DataProgress, LogProgress
from messi.data.sampling import Sampler
from messi.data.sealed_data import SealedData
from messi.data.seen_examples import seen_digests
from messi.data.splits import Split, make_split
from messi.engine.averaging.choice import make_averager
from messi.engine.checkpoint import FrozenWeights
from messi.engine.config import RunConfig
from messi.engine.encode import encode_images
from messi.engine.loop import RunParts, TrainingParts
from messi.engine.metrics_log import Metrics, MetricsLog
from messi.engine.observers import Observer, Stopwatch, TensorBoard
from messi.engine.start import Start, read_start
from messi.engine.stepper import AdamStepper
from messi.evaluation.selection import ORACLE, RULES
from messi.models.encoder import Encoder
from messi.models.lora import plain_state

_MANY = 10
"""So many classes may well have few examples each, if there are few examples."""
_DECIMALS = re.compile(r"-?[0-9]*\.[0-9]*[1-9]")


def build_run(  # noqa: PLR0913 (all that a run can be given)
    config: RunConfig,
    examples: Examples,
    folder: RunDir,
    device: torch.device,
    observers: Sequence[Observer] = (),
    *,
    capture: bool = True,
    start: Start | None = None,
    precision: Precision | None = None,
    progress: DataProgress | None = None,
    processes: Processes | None = None,
) -> RunParts:
    """Build the parts of a run from its resolved config, without writing anything to its folder.

    ``start`` overrides the config's, and ``precision`` that of a run that has begun; ``progress`` follows the encoding
    of images by a frozen encoder.
    """
    split = split_of(config, examples)
    _note_classes(examples, split)
    seen = seen_digests(examples, split)
    description = dataclasses.replace(_describe(config, examples, split), seen=tensors_checksum(seen))
    spec = fitted_spec(config, examples, split)
    if config.start and start is None:
        start = read_start(config.start, folder, description, spec)
    begun = folder.read_description() if precision is None and folder.state() != "new" else None
    stopwatch = Stopwatch(device, processes.size if processes else 1)
    tensorboard = TensorBoard(folder.path / "tensorboard", RULES[config.training.selection].role)
    metrics = MetricsLog(folder.records, [tensorboard, stopwatch, *observers])
    parts = build_training(
        config,
        examples,
        split,
        spec,
        device,
        metrics=metrics,
        stopwatch=stopwatch,
        start=start,
        precision=_precision_of(begun, device) if begun else precision,
        progress=progress,
        processes=processes,
    )
    recorded = begun.precision if begun else parts.description.precision
    description = dataclasses.replace(parts.description, seen=description.seen, precision=recorded)
    own = {"folder": folder, "metrics": metrics, "capture": capture, "seen": seen, "description": description}
    return RunParts(**{**vars(parts), **own})


def build_training(  # noqa: PLR0913 (what a run and an estimator have in common)
    config: RunConfig,
    examples: Examples,
    split: Split,
    spec: InputSpec,
    device: torch.device,
    *,
    metrics: Metrics,
    stopwatch: Stopwatch,
    start: Start | None = None,
    precision: Precision | None = None,
    progress: DataProgress | None = None,
    processes: Processes | None = None,
) -> TrainingParts:
    """Build what trains on a split of the examples, from a resolved config; by default in the precision it states."""
    training = config.training
    validation = RULES[training.selection].role
    if not split.of(validation):
        raise MessiError(
            f"selection '{training.selection}' requires '{validation}' data, which this split does not have; choose "
            "another rule with --selection."
        )
    if training.selection == ORACLE and not split.target_val:
        raise MessiError(
            "selection 'oracle' requires a target and validates on the part of it that is not tested; name a --target "
            "and add --target-part in."
        )
    task = Task(input_shape=spec.shape, num_classes=len(examples.classes), num_domains=len(split.train))
    algorithm = _initialised(config, task, start)
    algorithm.precision = precision or choose_precision(config.encoder, device, config.precision)
    if "bfloat16" in vars(algorithm.precision).values() and not hardware_of(device).bfloat16:
        LogProgress().noted("The run computes in bfloat16, which this device emulates: expect it to be slow.")
    if processes:
        from messi.engine.divisible import require_divisible  # noqa: PLC0415 (imports timm, which takes long)

        require_divisible(algorithm, config, device)
    description = dataclasses.replace(
        _describe(config, examples, split),
        start=start.checksum if start else None,
        initial=tensors_checksum(plain_state(algorithm)),
        precision=algorithm.precision,
    )
    algorithm.to(device)
    sealed = _sealed(config, examples, split, algorithm, spec, device, algorithm.precision, progress)
    part = (processes.rank, processes.size) if processes and not algorithm.whole_inputs else (0, 1)
    loader = loader_of(config, sealed, spec, device, _sampler(config, examples, split), part)
    return TrainingParts(
        config=config,
        algorithm=algorithm,
        stepper=AdamStepper(algorithm, training, processes),
        averager=make_averager(algorithm, training, num_classes=task.num_classes),
        loader=loader,
        metrics=metrics,
        stopwatch=stopwatch,
        task=task,
        description=description,
        frozen=FrozenWeights.of(algorithm),
        processes=processes,
    )


def fitted_spec(config: RunConfig, examples: Examples, split: Split) -> InputSpec:
    """Return the format of the encoder's input; that of features is fitted to the source training part."""
    spec = config.encoder.input_spec(examples.input_shape)
    if isinstance(examples.inputs, Images):
        return spec
    train = torch.cat(list(split.train.values()))
    if examples.scaling == "standardise" and (names := constant_features(examples.inputs, train, examples.columns)):
        LogProgress().noted(
            "Some features have the same value in all training examples, so the model learns nothing from them: "
            f"{first_few(names, 10)}."
        )
    if names := row_numbers(examples.inputs, examples.columns):
        LogProgress().noted(
            "Some features number the examples, as identifiers do, which the model cannot use on new data: "
            f"{first_few(names, 10)}. Leave them out, in a table with --ignore."
        )
    return fit_spec(examples.inputs, train, examples.columns, examples.scaling)


def _initialised(config: RunConfig, task: Task, start: Start | None) -> Algorithm:
    """Return the method with the weights that training begins with."""
    torch.manual_seed(derive_seed("initialise", config.seed))
    encoder = config.encoder
    algorithm = build(config.algorithm, task=task, encoder=encoder.without_weights() if start else encoder)
    if start:
        start.load_into(algorithm, config)
    algorithm.restrict(encoder.tuning)
    if start and tensors_checksum(plain_state(algorithm)) != start.checksum:
        raise MessiError(
            f"The run cannot start from {start.path} with --tune head: its encoders differ, and a frozen one is shared."
        )
    return algorithm


def _sealed(
    config: RunConfig,
    examples: Examples,
    split: Split,
    algorithm: Algorithm,
    spec: InputSpec,
    device: torch.device,
    precision: Precision,
    progress: DataProgress | None,
) -> SealedData:
    """Return the data of a run, with the features of its images if the encoder is frozen."""
    if config.encoder.tuning.kind != "head":
        return SealedData(placed(encoded(examples, spec), device), split)
    encoder = next(module for module in algorithm.modules() if isinstance(module, Encoder))
    features = encode_images(config, examples, encoder, spec, device, precision.prediction, progress)
    return SealedData(examples, split, features)


def _precision_of(begun: RunDescription, device: torch.device) -> Precision:
    """Return the precision in which a run began; earlier versions did not record it and had no choice."""
    if begun.precision:
        return begun.precision
    return Precision.stated("float32") if device.type == "cpu" else hardware_of(device).precision


def _note_classes(examples: Examples, split: Split) -> None:
    """Report a single class in training, and the classes of the target without training examples."""
    trained = set(examples.labels[torch.cat(list(split.train.values()))].tolist())
    if len(trained) == 1:
        (only,) = trained
        LogProgress().noted(
            f"All training examples have the class '{examples.classes[only]}', so the model can only answer this class "
            "and its accuracy means nothing: train on two classes or more. In a table, --label names the column of the "
            "classes; in an .npz file, --labels-array names their array."
        )
    number, names = sum(map(len, split.train.values())), [examples.classes[label] for label in sorted(trained)]
    if len(trained) > _MANY and (2 * len(trained) > number or any(map(_DECIMALS.fullmatch, names))):
        LogProgress().noted(
            f"The {number:,} training examples have {len(trained):,} classes, such as '{names[-1]}', which look like "
            "quantities or identifiers: the model needs several examples of each class. Give classes as labels, such "
            "as ranges of a quantity."
        )
    unseen: dict[str, list[str]] = {}
    for domain, indices in split.target.items():
        for label in sorted(set(examples.labels[indices].tolist()) - trained):
            unseen.setdefault(examples.classes[label], []).append(examples.domain_names[domain])
    if unseen:
        names = [f"'{label}' (in {first_few(domains)})" for label, domains in unseen.items()]
        LogProgress().noted(
            "Some classes of the target have no training examples, so the model cannot learn them: "
            f"{first_few(names, 10)}."
        )


def split_of(config: RunConfig, examples: Examples, *, share_small: bool = False) -> Split:
    """Return the roles of the examples in a run, given its resolved config; ``share_small`` as in ``make_split``."""
    targets, sources = (domain_indices(examples, names) for names in (config.target, config.sources))
    seed = config.seed if config.split_seed is None else config.split_seed
    return make_split(examples, targets, config.training, sources=sources, seed=seed, share_small=share_small)


def loader_of(
    config: RunConfig,
    sealed: SealedData,
    spec: InputSpec,
    device: torch.device,
    sampler: Sampler | None = None,
    part: tuple[int, int] = (0, 1),
) -> Loader:
    """Return the loader of a run, the same for training and for a later evaluation of its model; ``part`` as there."""
    return Loader(
        data=sealed,
        spec=spec,
        device=device,
        seed=config.seed,
        sampler=sampler,
        augmentation=config.training,
        part=part,
    )


def placed(examples: Examples, device: torch.device) -> Examples:
    """Return the examples with their pixels in the memory nearest to the device that has room."""
    inputs = examples.inputs
    return dataclasses.replace(examples, inputs=place(inputs, device)) if isinstance(inputs, Images) else examples


def _sampler(config: RunConfig, examples: Examples, split: Split) -> Sampler:
    members = list(split.train.values())
    labels = [examples.labels[indices] for indices in members]
    return Sampler(config=config.training, members=members, labels=labels, seed=config.seed)


def pick_device(name: str | None) -> torch.device:
    """Return the named device; by default a GPU if there is one."""
    unknown = MessiError(f"There is no device '{name}'; use 'cpu', 'cuda', 'cuda:1' or 'mps'.")
    try:
        device = torch.device(name or local_devices()[0].removesuffix(":0"))
        if launched() and device == torch.device("cuda"):  # one for each process
            device = torch.device("cuda", local_rank())
    except RuntimeError as error:
        raise unknown from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise MessiError("No CUDA device is available here; use --device cpu.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise MessiError("No Apple GPU (MPS) is available here; use --device cpu.")
    if device.type not in ("cpu", "cuda", "mps") or (device.index or 0) >= max(torch.cuda.device_count(), 1):
        raise unknown
    return device


def _describe(config: RunConfig, examples: Examples, split: Split) -> RunDescription:
    return RunDescription(
        config=config.to_dict(),
        version=version(),
        data=examples.fingerprint,
        classes=examples.classes,
        sources=tuple(examples.domain_names[domain] for domain in split.train),
        target=tuple(examples.domain_names[domain] for domain in split.target),
        environment=environment(),
    )
