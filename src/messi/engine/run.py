"""A config becomes a finished run: a folder with records, the selected model, a result and a report."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from messi.algorithms._base import Algorithm, build
from messi.core.batch import Task
from messi.core.errors import MessiError
from messi.core.files import write_text
from messi.core.info import environment, version
from messi.core.records import EvaluationRecord, RoleRecord
from messi.core.rundir import RunDir
from messi.core.seeding import derive_seed, deterministic
from messi.data.examples import Examples, domain_indices
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.placement import place
from messi.data.sampling import Sampler
from messi.data.splits import Split, make_split, official_split
from messi.data.vault import Vault
from messi.diagnostics.document import diagnose
from messi.engine.averaging import Averager
from messi.engine.config import RunConfig, Settings
from messi.engine.final import choose, evaluate_chosen
from messi.engine.ledger import Ledger
from messi.engine.loop import Training, train
from messi.engine.observers import Observer, Stopwatch, TensorBoard
from messi.engine.stepper import AdamStepper
from messi.evaluation.selection import RULES


@dataclass(frozen=True)
class RunResult:
    """Where a run lies and how it did."""

    path: Path
    selected_step: int
    """The last step that went into the weights."""
    source_val: dict[str, float]
    """Accuracy of the selected model on the held-out part of every source domain."""
    target: dict[str, float]
    """Accuracy on every target domain."""
    fresh: bool = True
    """False when the run had been finished before and nothing was done."""


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    device: str | None = None,
    capture: bool = True,
    observers: Sequence[Observer] = (),
    load: Callable[[], Examples] | None = None,
) -> RunResult:
    """Train, select, evaluate the target once, and leave everything in a folder.

    The same call again goes on where a killed run was, and does nothing when it is finished.

    Args:
        config: what to run.
        out: the run folder; by default one under ``runs/`` that is named by the config.
        device: such as "cpu" or "cuda"; by default a GPU if there is one.
        capture: on a GPU, record the step once and replay it; the result is the same.
        observers: objects that are told of progress.
        load: gives the examples, such as those already loaded for another run; by default ``config.data.load``.

    """
    config = config.resolved()
    folder = RunDir(Path(out) if out else Path("runs") / config.folder_name())
    if folder.is_finished(config.to_dict(), version()):
        return read_result(folder, fresh=False)
    config.encoder.check_weights()
    chosen = pick_device(device)
    examples = load() if load else config.data.load()
    with deterministic(enabled=config.settings.deterministic):
        training = prepare(config, examples, folder, chosen, observers, capture=capture)
        with folder.locked(), closing(training.ledger):
            folder.begin(training.description)
            train(training)
            _finish(training, config)
    return read_result(folder, fresh=True)


def prepare(
    config: RunConfig,
    examples: Examples,
    folder: RunDir,
    device: torch.device,
    observers: Sequence[Observer] = (),
    *,
    capture: bool = True,
) -> Training:
    """Build the parts of a run; ``config`` is a resolved one. Nothing is written."""
    settings, split = config.settings, split_of(config, examples)
    if not split.of(RULES[settings.selection].role):
        raise MessiError(
            f"selection '{settings.selection}' has no data to read in this split; choose another with --selection."
        )
    spec = config.encoder.input_spec(examples.input_shape)
    vault = Vault(placed(examples, device), split)
    loader = Loader(
        vault=vault,
        spec=spec,
        device=device,
        seed=config.seed,
        sampler=_sampler(config, examples, split),
        augmentation=settings.augmentation,
        validation_augmentation=settings.validation_augmentation,
    )
    task = Task(input_shape=spec.shape, num_classes=len(examples.classes), num_domains=len(split.train))
    torch.manual_seed(derive_seed("initialise", config.seed))
    algorithm = build(config.algorithm, task=task, encoder=config.encoder).to(device)
    stopwatch = Stopwatch(device)
    return Training(
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
        ledger=Ledger(folder.records, [TensorBoard(folder.path / "tensorboard"), stopwatch, *observers]),
        stopwatch=stopwatch,
        task=task,
        capture=capture,
        description=_description(config, examples, split),
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


def read_result(folder: RunDir, *, fresh: bool) -> RunResult:
    """Return the result of a finished run."""
    result = folder.read_result()
    return RunResult(folder.path, result["selected_step"], result["source_val"], result["target"], fresh)


def pick_device(name: str | None) -> torch.device:
    """Return the named device, or a GPU if there is one."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise MessiError(f"There is no device '{name}'; use 'cpu', 'cuda' or 'cuda:1'.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise MessiError("No CUDA device is available here; use --device cpu.")
    return device


def _finish(training: Training, config: RunConfig) -> None:
    chosen = choose(training)
    evaluate_chosen(training, chosen)
    averaged = chosen.averaged_steps is not None
    records = [r for r in training.ledger.evaluations if r.step == chosen.step and r.averaged == averaged]
    domains = [r for r in records if isinstance(r, EvaluationRecord)]
    accuracy = {role: {r.domain: r.accuracy for r in domains if r.role == role} for role in ("source_val", "target")}
    roles = [r for r in records if isinstance(r, RoleRecord)]
    result = {
        "selection": chosen.selection,
        "validation": RULES[config.settings.selection].role,
        "selected_step": chosen.step,
        "averaged_steps": chosen.averaged_steps,
        **accuracy,
        "roles": {r.role: {"count": r.count, "accuracy": r.accuracy, "macro_f1": r.macro_f1} for r in roles},
        "target_part": config.settings.target_part,
        "protocol": config.protocol,
        "deviations": config.deviations(),
    }
    # Before the result, whose presence means that there is nothing left to do.
    document = diagnose(training.algorithm, training.loader, accuracy)
    write_text(training.folder.diagnostics, json.dumps(document) + "\n")
    write_text(training.folder.timing, json.dumps(training.stopwatch.timing(), indent=2) + "\n")
    write_text(training.folder.result, json.dumps(result, indent=2) + "\n")


def _description(config: RunConfig, examples: Examples, split: Split) -> dict[str, object]:
    return {
        "config": config.to_dict(),
        "version": version(),
        "data": examples.fingerprint,
        "classes": list(examples.classes),
        "sources": [examples.domain_names[domain] for domain in split.train],
        "target": [examples.domain_names[domain] for domain in split.target],
        "environment": environment(),
    }
