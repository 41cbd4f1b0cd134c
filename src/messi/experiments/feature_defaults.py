"""The defaults for features against logistic regression, every domain of public feature sets held out in turn.

Claim: none of the paper's. The protocol, with the names and sources of the eleven sets, is docs/feature_study.md.
Command: messi reproduce feature_defaults --path FOLDER (one .npz file per set: inputs, labels, domains)
Cost: 396 runs of 300 steps on all eleven sets with three methods; 1 to 10 s of one CPU core each.
"""

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.algorithms.erm import ERM
from messi.core.errors import MessiError
from messi.core.records import Role
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.npz import read_npz
from messi.data.loader import Loader
from messi.engine.config import RunConfig, TrainingConfig
from messi.experiments.common.base import Experiment
from messi.reports.plan_page import Section
from messi.reports.statistics import Difference, Summary, paired_difference, target_average, whole_seeds
from messi.reports.table import Cell, Column, Row, Table
from messi.studies.common.measuring import Measurement, read_measured
from messi.studies.common.methods import with_method
from messi.studies.common.results import Results
from messi.sweeps.plan import PlannedRun

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Values of C, of which the validation part of the source domains selects one."""
LOGISTIC, BASELINE = "logistic regression", "erm"
_INTERVAL = ("difference", "2.5 %", "97.5 %")
SETS = {
    "abalone": ("0", "1", "2"),
    "adult": ("federal_gov", "incorporated", "local_gov", "private", "self_employed", "state_gov"),
    "flights": ("EWR", "JFK", "LGA"),
    "gas_drift": ("batch1", "batch2", "batch3", "batch4-5", "batch6", "batch8-9"),
    "heart": ("cleveland", "hungarian", "switzerland", "va"),
    "office_caltech": ("amazon", "caltech10", "dslr", "webcam"),
    "penguins": ("Adelie", "Chinstrap", "Gentoo"),
    "reviews": ("books", "dvd", "electro", "kitchen"),
    "sentences": ("amazon_cells", "imdb", "yelp"),
    "titanic": ("1st", "2nd", "3rd"),
    "vowel": ("speakers0-2", "speakers12-14", "speakers3-5", "speakers6-8", "speakers9-11"),
}
"""The sets of the study and their domains."""


# Measuring: with the data of a run.


@dataclass(frozen=True)
class Logistic:
    """Accuracy of logistic regression on the data of a run, as a share."""

    target: Tensor
    """NaN for runs of other methods than ERM, which have the same data."""


def measure_logistic(algorithm: Algorithm, loader: Loader) -> Logistic:
    """Fit logistic regression to the training part that an ERM run used, and score it on the target of the run."""
    if not isinstance(algorithm, ERM):
        return Logistic(torch.tensor(math.nan))
    parts: dict[Role, list[tuple[Any, Any]]] = {
        role: [_arrays(loader, role, domain) for domain in loader.data.domains(role)]
        for role in ("train", "source_val", "target")
    }
    inputs, labels = (torch.cat([part[which] for part in parts["train"]]).numpy() for which in (0, 1))
    if len(set(labels.tolist())) == 1:
        raise MessiError("Logistic regression requires training examples of two classes.")
    models = [LogisticRegression(C=penalty, max_iter=1000).fit(inputs, labels) for penalty in PENALTIES]
    best = max(models, key=lambda model: _mean_accuracy(model, parts["source_val"]))
    return Logistic(torch.tensor(_mean_accuracy(best, parts["target"])))


def _arrays(loader: Loader, role: Role, domain: int) -> tuple[Tensor, Tensor]:
    indices = loader.data.indices(role, domain)
    return loader.data.features(indices), loader.data.labels(indices)


def _mean_accuracy(model: Any, parts: list[tuple[Any, Any]]) -> float:
    """Return the mean over domains, as of a run."""
    return sum(float(model.score(inputs.numpy(), labels.numpy())) for inputs, labels in parts) / len(parts)


LOGISTIC_REGRESSION = Measurement(
    name="logistic_regression",
    what="logistic regression on its data",
    settings={"smallest_penalty": PENALTIES[0], "largest_penalty": PENALTIES[-1]},
    measure=measure_logistic,
    kind=Logistic,
)


# Reporting: from files.


@dataclass(frozen=True, kw_only=True)
class FeatureDefaults(Experiment):
    """Methods with the default network and settings for features, on sets of different sizes."""

    title: ClassVar[str] = "The defaults for features"
    claim: ClassVar[str] = "none; a study of our own."
    cost: ClassVar[str] = "396 runs of 300 steps with three methods on eleven sets; 1 to 10 s of one CPU core each"
    measurement: ClassVar[Measurement[Any] | None] = LOGISTIC_REGRESSION
    reduced: ClassVar[str] = "60 steps, one seed"

    path: str = "features"
    """Folder with one .npz file per set (inputs, labels, domains)."""
    sets: tuple[str, ...] = ()
    """Names of the files, without their ending; by default all in the folder."""
    methods: tuple[str, ...] = (BASELINE, "messi", "coral")
    """Methods and recipes by name; erm is always included, because the others are compared with it."""

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, set, target and method."""
        training = TrainingConfig(steps=60, evaluate_every=20) if self.small else TrainingConfig()
        targets = {name: self._targets(name) for name in self._sets}
        return [
            PlannedRun(
                {"method": method, "data": name, "target": target, "seed": seed},
                with_method(method, RunConfig(data=self._data(name), target=(target,), training=training, seed=seed)),
            )
            for seed in self.all_seeds()
            for name in self._sets
            for target in targets[name]
            for method in self._methods
        ]

    def report(self, results: Results) -> list[Section]:
        """Return the accuracy of every method on every set, and the differences to ERM and logistic regression."""
        logistic = self._logistic(results)
        return [self._accuracies(results, logistic), self._differences(results, logistic)]

    @property
    def _methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((BASELINE, *self.methods)))

    @property
    def _sets(self) -> tuple[str, ...]:
        return self.sets or tuple(sorted(file.stem for file in Path(self.path).glob("*.npz"))) or tuple(SETS)

    def _data(self, name: str) -> Arrays:
        return Arrays(path=str(Path(self.path) / f"{name}.npz"))

    def _targets(self, name: str) -> list[str]:
        file = Path(self._data(name).path)
        if not file.exists() and name in SETS:  # the plan can be listed without the data
            return list(SETS[name])
        return sorted(map(str, set(read_npz(file, ["domains"])["domains"].tolist())))

    def _logistic(self, results: Results) -> dict[str, dict[tuple[str, int], float]]:
        """Return the accuracy of logistic regression in percent, by set, target and seed."""
        found = read_measured(results, LOGISTIC_REGRESSION)
        scores: dict[str, dict[tuple[str, int], float]] = {}
        for outcome in results.where(method=BASELINE):
            if outcome.path in found:
                labels = outcome.labels
                key = str(labels["target"]), int(labels["seed"])
                scores.setdefault(str(labels["data"]), {})[key] = 100 * float(found[outcome.path].target)
        return scores

    def _accuracies(self, results: Results, logistic: dict[str, dict[tuple[str, int], float]]) -> Table:
        names = list(dict.fromkeys(str(outcome.labels["data"]) for outcome in results.outcomes))

        def of_logistic(name: str) -> Cell:
            targets = self._targets_of(results, name)
            average = target_average(whole_seeds(logistic.get(name, {}), targets), targets)
            return dataclasses.replace(results.state(method=BASELINE, data=name), ours=average)

        rows = [Row((LOGISTIC,), tuple(map(of_logistic, names)))]
        for method in self._methods:
            cells = tuple(results.cell(method=method, data=name) for name in names)
            rows.append(Row((method,), cells, method.startswith("messi")))
        return Table(
            name="feature_defaults",
            title="Accuracy on held-out domains",
            explanation="Mean over the targets of a set. Logistic regression is scikit-learn's on the same "
            "standardised features, with C from 1e-4 to 10 selected by the same validation part",
            provenance=results.provenance(data="public feature sets (docs/feature_study.md)", reduced=self._reduced),
            heads=("Method",),
            columns=tuple(Column(name) for name in names),
            groups=(tuple(rows),),
        )

    def _differences(self, results: Results, logistic: dict[str, dict[tuple[str, int], float]]) -> Table:
        rows = []
        for name in dict.fromkeys(str(outcome.labels["data"]) for outcome in results.outcomes):
            targets = self._targets_of(results, name)
            erm = results.scores("target", method=BASELINE, data=name)
            for method in self._methods:
                ours = results.scores("target", method=method, data=name)
                state = results.state(method=method, data=name)
                to_erm = paired_difference(ours, erm, targets) if method != BASELINE else None
                to_logistic = paired_difference(ours, logistic.get(name, {}), targets)
                cells = (*_cells(state, to_erm), *_cells(state, to_logistic))
                rows.append(Row((method, name), cells, method == "messi"))
        return Table(
            name="feature_defaults_differences",
            title="Differences to ERM and to logistic regression",
            explanation="In percentage points, paired by target and seed; the 95 % interval is Student's with the "
            "variance within each target and requires two seeds",
            provenance=results.provenance(data="public feature sets (docs/feature_study.md)", reduced=self._reduced),
            heads=("Method", "Data"),
            columns=tuple(
                Column(f"{what} {column}".strip(), "none", 2)
                for what in ("to ERM", "to logistic")
                for column in _INTERVAL
            ),
            groups=(tuple(rows),),
            over_seeds=False,
        )

    @property
    def _reduced(self) -> str:
        return self.reduced if self.small else ""

    @staticmethod
    def _targets_of(results: Results, name: str) -> list[str]:
        return list(dict.fromkeys(str(outcome.labels["target"]) for outcome in results.where(data=name)))


def _cells(state: Cell, found: Difference | None) -> tuple[Cell, ...]:
    """Return the mean difference and both ends of its interval."""
    values = (None, None, None) if found is None else (found.mean, *(found.interval or (None, None)))
    n = found.n if found else 0
    return tuple(
        dataclasses.replace(state, ours=None if value is None else Summary(value, None, n)) for value in values
    )
