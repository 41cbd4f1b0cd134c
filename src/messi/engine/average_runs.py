"""Average the weights of several finished runs into one model, with a run folder of its own (DiWA).

The runs must have begun with the same weights and share their validation split: only then is the average a useful
model, and only then has no run been trained on the examples that validate the average.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from messi.core.batch import InputSpec
from messi.core.checksum import values_checksum
from messi.core.config import flatten
from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.records import EvaluationRecord, RoleRecord
from messi.core.run_documents import AverageChoice, AveragedRun, AveragedScores, Result, RunAverage
from messi.core.rundir import RunDir
from messi.core.seeding import deterministic
from messi.core.tensorfile import write_tensors
from messi.data.examples import Examples
from messi.engine.averaging.batch_norm import reestimate
from messi.engine.build import build_run, pick_device, split_of
from messi.engine.config import RunConfig
from messi.engine.finish import BATCH_NORM_BATCHES, Chosen, finish_with
from messi.engine.loop import RunParts, model_description
from messi.engine.run import RunResult, read_result
from messi.engine.start import Start, first_difference
from messi.evaluation.measure import evaluation_records, predict_role, role_record
from messi.evaluation.model import ModelDescription, load, read_model, save_model
from messi.evaluation.selection import RULES, select

Weights = dict[str, Tensor]


def average_runs(
    runs: Sequence[str | Path],
    *,
    choice: AverageChoice = "uniform",
    out: str | Path | None = None,
    device: str | None = None,
    algorithm: str | Path | None = None,
    load_data: Callable[[], Examples] | None = None,
) -> RunResult:
    """Average the models of finished runs, test the average once on the target and save everything in a folder.

    Repeating the call starts an interrupted average again and returns the result of a finished one.

    Args:
        runs: the run folders.
        choice: "uniform" averages all of them. "greedy" sorts them by validation score, starts with the best, and adds
            each of the others unless it lowers the validation score of the average.
        out: the folder of the average; by default one in ``runs/``.
        device: such as "cpu" or "cuda"; by default a GPU if there is one.
        algorithm: the file with the method if it is the user's own.
        load_data: returns the examples; by default those that the config of the first run names.

    """
    members = _read_members(runs, algorithm)
    first = members[0]
    config = RunConfig.from_dict(first.description.config, files=() if algorithm is None else (algorithm,)).resolved()
    average = RunAverage(choice=choice, runs=_described(members))
    folder = RunDir(Path(out) if out else Path("runs") / _folder_name(config, average))
    if folder.is_finished(first.description.config, version(), average.identity):
        return read_result(folder, fresh=False)
    chosen_device = pick_device(device)
    examples = (load_data or config.data.load)()
    if examples.fingerprint != first.description.data:
        raise MessiError(f"The data of {first.path} has changed since the run; restore it to average the run.")
    _require_one_split(members, examples, algorithm)
    with deterministic(enabled=config.training.deterministic):
        parts = _build(config, examples, folder, chosen_device, first, average)
        _require_one_preparation(members, parts.loader.spec)
        with folder.locked(), closing(parts.metrics):
            folder.begin(parts.description)
            fresh = folder.state() != "done"  # another process may have finished it while the data was loaded
            if fresh:
                write_tensors(folder.seen, parts.seen, {})
                parts.metrics.open(0)
                _save_average_and_test(parts, members, choice)
    return read_result(folder, fresh=fresh)


@dataclass(frozen=True)
class Member:
    """A finished run that may become part of an average."""

    folder: RunDir
    description: ModelDescription
    result: Result

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.folder.path

    def weights(self) -> Weights:
        """Read the weights of the selected model."""
        return read_model(self.folder)[0]

    def score(self, rule: str) -> float:
        """Return the validation score of the model, as recorded by the run."""
        measured = [r for r in self.folder.read_records() if isinstance(r, EvaluationRecord | RoleRecord)]
        selected = [record for record in measured if record.step == self.result.selected_step]
        return select(selected, rule, averaged=self.result.averaged).score


@dataclass(frozen=True)
class Mean:
    """The mean of the weights of some runs, summed in float64."""

    first: Weights
    total: Weights
    number: int

    @classmethod
    def of(cls, weights: Weights) -> "Mean":
        """Return the mean of one run."""
        floats = {name: tensor.double() for name, tensor in weights.items() if tensor.is_floating_point()}
        return cls(weights, floats, 1)

    def including(self, weights: Weights) -> "Mean":
        """Return the mean with one run more."""
        total = {name: summed + weights[name].double() for name, summed in self.total.items()}
        return Mean(self.first, total, self.number + 1)

    def weights(self) -> Weights:
        """Return the mean in the precision of the runs; counters and masks are those of the first run."""
        means = {name: (total / self.number).to(self.first[name].dtype) for name, total in self.total.items()}
        return {**self.first, **means}


def _read_members(paths: Sequence[str | Path], algorithm: str | Path | None) -> list[Member]:
    """Read finished runs; raise an error that names the first one that cannot be averaged with the first of all."""
    if not paths:
        raise MessiError("There is nothing to average; name at least one run folder.")
    results = [(folder, folder.read_result()) for folder in map(RunDir, map(Path, paths))]
    for folder, _ in results:
        if not folder.records.exists():
            raise MessiError(
                f"{folder.records} is missing, so the validation score of the run is unknown; restore it from a copy, "
                "or leave the run out."
            )
    members = [Member(folder, read_model(folder)[1], result) for folder, result in results]
    first, weights = members[0], members[0].weights()
    load(first.path, algorithm=algorithm)  # raises if its config and weights do not belong together
    for member in members[1:]:
        if difference := _first_setting(first, member) or _other_weights(weights, member.weights()):
            raise MessiError(f"{member.path} cannot be averaged with {first.path}: {difference}.")
    if any(member.description.initial is None for member in members):
        logging.getLogger("messi").warning(
            "Some runs are of an earlier version of messi, so it is unknown whether all began with the same weights; "
            "the average of runs that did not is useless."
        )
    return members


def _first_setting(first: Member, other: Member) -> str:
    """Describe the first way in which two runs differ that prevents an average; empty if there is none."""
    ours, theirs = first.description, other.description
    if theirs.data != ours.data:
        return "it was trained on other data"
    for name in ("classes", "sources", "target"):
        if getattr(theirs, name) != getattr(ours, name):
            return f"its {name} are {_listed(getattr(theirs, name))} instead of {_listed(getattr(ours, name))}"
    for part, setting in (("algorithm", "name"), ("encoder", "backbone"), ("training", "target_part")):
        before, now = (one.config[part].get(setting) for one in (ours, theirs))
        if before != now:
            return f"its {part if setting == 'name' else setting} is {now} instead of {before}"
    if None not in (ours.initial, theirs.initial) and ours.initial != theirs.initial:
        return (
            "they began with different weights, and the mean of such networks is useless; train both with the same "
            "--start, or with the same --seed"
        )
    return ""


def _other_weights(ours: Weights, theirs: Weights) -> str:
    """Describe the first tensor that differs in shape, or a mask that differs in values."""
    masks = (name for name, tensor in ours.items() if tensor.dtype == torch.bool)
    return first_difference(ours, theirs) or next(
        (f"its '{name}' uses other parts of the network" for name in masks if not ours[name].equal(theirs[name])), ""
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _described(members: Sequence[Member]) -> tuple[AveragedRun, ...]:
    flats = [flatten(member.description.config) for member in members]
    names = dict.fromkeys(name for flat in flats for name in flat)
    varied = [name for name in names if len({flat.get(name) for flat in flats}) > 1]
    return tuple(
        AveragedRun(
            run=member.folder.identity(),
            path=str(member.path),
            settings={name: flat[name] for name in varied if name in flat},
        )
        for member, flat in zip(members, flats, strict=True)
    )


def _folder_name(config: RunConfig, average: RunAverage) -> str:
    data_method_target = config.folder_name().rpartition("_seed")[0]
    digits = values_checksum({"origin": list(average.identity)})[:12]
    return f"{data_method_target}_{average.choice}-average_{digits}"


def _require_one_split(members: Sequence[Member], examples: Examples, algorithm: str | Path | None) -> None:
    """Raise unless all runs hold out the same validation examples."""
    files = () if algorithm is None else (algorithm,)
    splits = [
        split_of(RunConfig.from_dict(member.description.config, files=files).resolved(), examples) for member in members
    ]
    for member, split in zip(members, splits, strict=True):
        for domain, indices in splits[0].train.items():
            if not indices.equal(split.train[domain]):
                raise MessiError(
                    f"{member.path} cannot be averaged with {members[0].path}: they validate on different examples, so "
                    "one was trained on examples that would validate the average. Train both with the same "
                    "--split-seed."
                )


def _require_one_preparation(members: Sequence[Member], spec: InputSpec) -> None:
    """Raise unless the inputs of all runs have the same meaning as those of the average."""
    prepared, options = (
        ("features are scaled", "--scaling")
        if len(spec.shape) == 1
        else ("images are resized or normalised", "--image-size and --normalisation")
    )
    for member in members:
        if member.description.spec != spec:
            raise MessiError(
                f"{member.path} cannot be averaged with the others: its {prepared} in another way. Train all runs with "
                f"the same {options}."
            )


def _build(
    config: RunConfig,
    examples: Examples,
    folder: RunDir,
    device: torch.device,
    first: Member,
    average: RunAverage,
) -> RunParts:
    """Build the parts of a run like the first one, but without the files that its weights came from."""
    encoder = config.encoder.without_weights()
    if encoder.tuning.kind == "lora":  # saved models have plain weights
        encoder = dataclasses.replace(encoder, tune="full")
    bare = dataclasses.replace(config, encoder=encoder, start=None)
    ours = first.description
    start = Start(first.path, first.weights(), ours.config)
    parts = build_run(bare, examples, folder, device, capture=False, start=start)
    description = dataclasses.replace(
        parts.description, config=ours.config, start=ours.start, initial=ours.initial, average=average
    )
    return dataclasses.replace(parts, description=description)


def _save_average_and_test(parts: RunParts, members: Sequence[Member], choice: AverageChoice) -> None:
    rule = parts.config.training.selection
    scores = [member.score(rule) for member in members]
    if choice == "greedy":
        weights, with_it, kept = _greedy(parts, members, scores)
    else:
        means = (member.weights() for member in members[1:])
        mean = functools.reduce(Mean.including, means, Mean.of(members[0].weights()))
        weights, with_it, kept = _installed(parts, mean), {}, set(range(len(members)))
    step = max(members[place].result.selected_step for place in kept)
    save_model(parts.folder.model, weights, model_description(parts, step))
    averaged = tuple(
        AveragedScores(validation=score, target=member.result.target, kept=place in kept, with_it=with_it.get(place))
        for place, (member, score) in enumerate(zip(members, scores, strict=True))
    )
    finish_with(parts, Chosen(f"{choice} average", step, averaged_runs=averaged))


def _greedy(
    parts: RunParts, members: Sequence[Member], scores: Sequence[float]
) -> tuple[Weights, dict[int, float], set[int]]:
    """Return the weights, the score of the average with each run, and the runs that it keeps."""
    rule = parts.config.training.selection
    best, *others = sorted(range(len(members)), key=lambda place: -scores[place])
    mean, with_it, kept = Mean.of(members[best].weights()), {best: scores[best]}, {best}
    weights, highest = mean.weights(), scores[best]
    for place in others:
        candidate = mean.including(members[place].weights())
        tried = _installed(parts, candidate)
        with_it[place] = _measured(parts, rule)
        if with_it[place] >= highest:
            mean, weights, highest = candidate, tried, with_it[place]
            kept.add(place)
    return weights, with_it, kept


def _installed(parts: RunParts, mean: Mean) -> Weights:
    """Copy a mean into the model, re-estimate its BatchNorm statistics and return its weights.

    A single run keeps its own statistics.
    """
    algorithm, last = parts.algorithm, parts.config.training.steps
    algorithm.load_state_dict(mean.weights())
    if mean.number > 1:  # with the batches that training would have continued with
        steps = range(last + 1, last + 1 + BATCH_NORM_BATCHES)
        reestimate(algorithm, (parts.loader.batch(step).inputs for step in steps))
    return {name: tensor.detach().cpu().clone() for name, tensor in algorithm.state_dict().items()}


def _measured(parts: RunParts, rule: str) -> float:
    """Return the validation score of the model."""
    role, names = RULES[rule].role, parts.loader.data.domain_names
    predictions = predict_role(parts.algorithm, parts.loader, role)
    records = evaluation_records(predictions, role=role, step=0, domain_names=names)
    return select([*records, role_record(predictions, role=role, step=0)], rule).score
