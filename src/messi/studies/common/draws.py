"""The draws of one method in a search: which one a rule chooses for each target, and how well it does there."""

import dataclasses
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from messi.core.rundir import RunDir
from messi.reports.statistics import summarise, target_average
from messi.reports.table import Cell
from messi.studies.common.hold_out import Group
from messi.studies.common.results import Results, Value
from messi.sweeps.choose_draw import RULES, DrawnRun, DrawRule, best_draw, drawn_run, mean_scores, over_targets
from messi.sweeps.plan import Outcome


@dataclass(frozen=True)
class Draws:
    """The runs of one method."""

    outcomes: Sequence[Outcome]
    targets: Mapping[str, Group]
    """What is held out, by the names that tables use; other runs are part of a cross-validation."""
    rule: DrawRule
    seeds: range

    @functools.cached_property
    def finished(self) -> list[DrawnRun]:
        """What the finished runs recorded."""
        return [_read(outcome) for outcome in self.outcomes if outcome.state == "done"]

    @functools.cached_property
    def scores(self) -> dict[str, dict[int, float]]:
        """The score of every draw for every target, as a mean over the seeds."""
        score = RULES[self.rule]
        return {
            target: mean_scores(score(self.finished, frozenset(group)), self.seeds)
            for target, group in self.targets.items()
        }

    def chosen(self, target: str) -> int | None:
        """Return the draw for a target; None if no draw is finished in all seeds."""
        return best_draw(self.scores[target])

    @property
    def best(self) -> int | None:
        """The draw with the highest score over all targets, to train for a new domain; None if no draw has all."""
        return best_draw(over_targets(list(self.scores.values())))

    def accuracies(self, target: str, draw: int | None) -> list[float]:
        """Return the accuracy of a draw on a target in percent, in every seed; none without a draw."""
        group = frozenset(self.targets[target])
        runs = {run.seed: run for run in self.finished if run.held_out == group and run.draw == draw}
        return [100 * statistics.fmean(runs[seed].target.values()) for seed in self.seeds if seed in runs]

    def chosen_accuracies(self) -> dict[str, list[float]]:
        """Return the accuracies of the chosen draws in percent by target, one for each seed."""
        return {target: self.accuracies(target, self.chosen(target)) for target in self.targets}

    def cell(self, target: str) -> Cell:
        """Return the accuracy of the chosen draw, and whether runs that the choice depends on are missing."""
        found = self.accuracies(target, self.chosen(target))
        ours = summarise(found, dispersion="standard error") if found else None
        return dataclasses.replace(self.state(target), ours=ours)

    def average(self) -> Cell:
        """Return the mean over targets of the chosen draws; empty if one is missing."""
        found = {(t, seed): value for t, one in self.chosen_accuracies().items() for seed, value in enumerate(one)}
        ours = target_average(found, list(self.targets), dispersion="standard error")
        return dataclasses.replace(_state(self.outcomes), ours=ours)

    def mean_of(self, value: Value) -> Cell:
        """Return the mean over targets of a value of the chosen draws; empty if one is missing."""
        chosen = {target: self.chosen(target) for target in self.targets}
        runs = [
            o for o in self.outcomes if o.state == "done" and chosen.get(str(o.labels["target"])) == o.labels["draw"]
        ]
        found = {(str(o.labels["target"]), int(o.labels["seed"])): value(o) for o in runs}
        ours = target_average(found, list(self.targets), dispersion="standard error")
        known = ours is not None and not math.isnan(ours.mean)
        return dataclasses.replace(_state(self.outcomes), ours=ours if known else None)

    def state(self, target: str) -> Cell:
        """Return an empty cell with the state of the runs for a target; a paused run is not missing."""
        group = set(self.targets[target])
        return _state([outcome for outcome in self.outcomes if group <= set(outcome.run.config.target)])

    def spread(self, target: str) -> dict[int, float]:
        """Return the accuracy on a target in percent of every draw that is finished in all seeds."""
        found = {draw: self.accuracies(target, draw) for draw in self.scores[target]}
        return {draw: statistics.fmean(values) for draw, values in found.items() if values}


def _state(outcomes: Sequence[Outcome]) -> Cell:
    return Results([outcome for outcome in outcomes if outcome.state != "paused"]).state()


def _read(outcome: Outcome) -> DrawnRun:
    folder, config = RunDir(outcome.path), outcome.run.config
    return drawn_run(
        folder.read_records(),
        draw=int(outcome.labels["draw"]),
        seed=int(outcome.labels["seed"]),
        held_out=config.target,
        selection=config.resolved().training.selection,
        averaged=folder.read_result().averaged,
    )
