"""Reads finished run folders, and labels runs by what distinguishes them."""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from messi.core.config import flatten
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, ExampleRecord, Record, Role, RoutingRecord, TrainRecord
from messi.core.registry import short_name
from messi.core.run_documents import AveragedScores, BetterStep, Diagnostics, RunAverage
from messi.core.rundir import RunDir

RecordType = TypeVar("RecordType", TrainRecord, EvaluationRecord, RoutingRecord, ExampleRecord)
_REPEATED = ("target", "seed")
"""The settings in which runs of one method differ; they come first in a label."""


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """The content of a finished run folder."""

    path: Path
    config: dict[str, Any]
    data: str
    algorithm: str
    steps: int
    seed: int
    version: str
    fingerprint: str
    """Of the data."""
    classes: tuple[str, ...]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    environment: dict[str, str]
    selection: str
    validation: Role
    """The role that the selection rule reads."""
    selected_step: int
    averaged_steps: tuple[int, int] | None
    """The first and the last of the averaged steps; None if the weights are those of the selected step."""
    average: RunAverage | None
    """Which runs were averaged; None for a run that was trained."""
    averaged_runs: tuple[AveragedScores, ...]
    """The results of these runs."""
    better_step: BetterStep | None
    target_part: str
    protocol: str
    """Its name, and the settings that differ from it."""
    recipe: str
    """Empty if the settings are those of no recipe."""
    records: tuple[Record, ...]
    diagnostics: Diagnostics
    """The content of ``diagnostics.json``; empty if the folder has none."""
    label: str = ""
    """Its name on a page; by default, what distinguishes it from the other runs."""

    def of_kind(self, kind: type[RecordType]) -> list[RecordType]:
        """Return the records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def label_noise(self) -> float:
        """The share of labels that the data set makes wrong deliberately; 0 if it has no such setting."""
        return float(self.config["data"].get("label_noise", 0))

    @property
    def one_expert_each(self) -> bool:
        """Whether every input goes to one expert with weight 1, regardless of the router's confidence, as in GMoE."""
        return self.diagnostics.get("router") == "blocks" and self.diagnostics.get("routing", {}).get("entropy") == 0

    @property
    def marked_step(self) -> int:
        """The step to mark in a curve; 0 if the weights are averaged over several."""
        return 0 if self.averaged else self.selected_step

    @property
    def averaged(self) -> bool:
        """Whether the weights are an average, over steps or over runs."""
        return self.averaged_steps is not None or bool(self.averaged_runs)

    def selected(self, role: Role) -> list[EvaluationRecord]:
        """Return the evaluations of the selected model on every domain in a role."""
        evaluations = [r for r in self.of_kind(EvaluationRecord) if r.averaged == self.averaged]
        return [r for r in evaluations if r.role == role and r.step == self.selected_step]


def read_run(path: Path, label: str = "") -> FinishedRun:
    """Read a finished run folder."""
    folder = RunDir(path)
    description, result = folder.read_description(), folder.read_result()
    config = description.config
    if average := description.average:  # else it would look like its first run
        config = {**config, "average": f"{average.choice} of {len(average.runs)} runs"}
    run = FinishedRun(
        path=path,
        config=config,
        data=config["data"]["name"],
        algorithm=short_name(config["algorithm"]["name"]),
        steps=config["training"]["steps"],
        seed=config["seed"],
        version=description.version,
        fingerprint=description.data,
        classes=description.classes,
        sources=description.sources,
        targets=description.target,
        environment=description.environment,
        selection=result.selection,
        validation=result.validation,
        selected_step=result.selected_step,
        averaged_steps=result.averaged_steps,
        average=average,
        averaged_runs=result.averaged_runs,
        better_step=result.better_step,
        target_part=result.target_part,
        protocol="; ".join([result.protocol, *(f"{k} {v}" for k, v in result.deviations.items())]),
        recipe=result.recipe or "",
        records=tuple(folder.read_records()),
        diagnostics=folder.read_diagnostics() if os.path.lexists(folder.diagnostics) else {},
        label=label,
    )
    if not run.selected(run.validation) or set(run.targets) - {r.domain for r in run.selected("target")}:
        raise MessiError(
            f"{path} is damaged: records.jsonl lacks evaluations of the selected step {run.selected_step}."
        )
    return run


def run_labels(runs: Sequence[FinishedRun], *, ignoring: Collection[str] = ()) -> list[str]:
    """Name every run by its label, or by its algorithm and the settings that distinguish runs of this algorithm."""
    flats = [{key: value for key, value in flatten(run.config).items() if key not in ignoring} for run in runs]
    labels = [run.label for run in runs]
    for algorithm in {run.algorithm for run in runs}:
        places = [place for place, run in enumerate(runs) if run.algorithm == algorithm]
        for place, words in zip(places, _distinguished([flats[place] for place in places]), strict=True):
            labels[place] = labels[place] or ", ".join([algorithm, *words])
    total, seen = Counter(labels), Counter[str]()
    for place, label in enumerate(labels):
        if total[label] > 1:
            seen[label] += 1
            labels[place] = f"{label} #{seen[label]}"
    return labels


def _distinguished(flats: Sequence[dict[str, str]]) -> list[list[str]]:
    """Return the words that distinguish each of several configs: target and seed if they differ, then other settings.

    A setting is left out where it has the value of most configs.
    """
    repeated = [key for key in _REPEATED if len({flat.get(key) for flat in flats}) > 1]
    others = [{key: value for key, value in flat.items() if key not in _REPEATED} for flat in flats]
    distinct = [other for place, other in enumerate(others) if other not in others[:place]]
    distinctive = _distinctive_settings(distinct)
    usual = {}
    for key in distinctive:
        value, number = Counter(other.get(key) for other in distinct).most_common(1)[0]
        if 2 * number > len(distinct):
            usual[key] = value
    short = Counter(map(_last_part, distinctive))
    names = {key: part if short[part := _last_part(key)] <= 1 else key for key in [*repeated, *distinctive]}
    return [
        [
            f"{name} {flat[key]}" if key in flat else f"no {name}"
            for key, name in names.items()
            if key not in usual or flat.get(key) != usual[key]
        ]
        for flat in flats
    ]


def _distinctive_settings(flats: Sequence[dict[str, str]]) -> list[str]:
    """Choose settings that distinguish several configs: repeatedly the one that leaves the fewest of them equal."""
    keys = list(dict.fromkeys(key for flat in flats for key in flat))
    chosen: list[str] = []

    def alike(more: Sequence[str]) -> int:
        """Return how many ordered pairs, each config with itself included, agree in the chosen settings and in more."""
        groups = Counter(tuple(flat.get(key) for key in [*chosen, *more]) for flat in flats)
        return sum(number * number for number in groups.values())

    while alike(()) > len(flats):
        chosen.append(min(keys, key=lambda key: alike([key])))
    return sorted(chosen, key=keys.index)


def _last_part(key: str) -> str:
    """Return the most informative part of a dotted name; for ``data.name`` it is the first."""
    return key.removesuffix(".name").rpartition(".")[2]
