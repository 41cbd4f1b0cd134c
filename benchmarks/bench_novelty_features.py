"""How often the warning of ``messi serve`` is right on tables and embeddings, and whether another score is better.

    python benchmarks/bench_novelty_features.py choose FOLDER [--out results/novelty_features]
    python benchmarks/bench_novelty_features.py measure FOLDER [--out results/novelty_features]

FOLDER has a table (.csv: label, domain, features) or arrays (.npz: inputs, labels, domains) per set. ``choose``
compares scores on pairs of domains that neither the encoder nor the bank has seen: for either of them as the target,
the other one is a source domain left out. ``measure`` looks at the targets. Runs have messi's defaults; finished ones
are not repeated.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor

from messi.algorithms.common.base import ALGORITHMS
from messi.core.info import environment
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.feature_table import FeatureTable
from messi.data.examples import Examples
from messi.data.features import Rows
from messi.data.loader import Loader
from messi.diagnostics.novelty import ACCEPTED, NEIGHBOURS, Bank, auroc
from messi.diagnostics.sampling import spaced
from messi.engine.config import RunConfig
from messi.engine.evaluate import reopen
from messi.engine.run import run
from messi.evaluation.model import Model, load
from messi.evaluation.predict import predict_and_encode
from messi.serving.known_domains import IN_ALL, PER_DOMAIN, KnownDomains, known_domains, points_of

CHOICE = ("penguins", "heart", "vowel", "reviews", "office_caltech", "abalone", "gas_drift", "adult")
CONFIRMATION = ("titanic", "sentences")
METHODS = ("erm", "messi")
BEFORE = "messi: cosine, features, and length"
"""The score of messi before this study."""
CHOSEN = "Euclidean, inputs"
"""Its score since."""
MOST, FOLDS = 500, 5
Scores = dict[str, tuple[Tensor, Tensor]]
"""By name: of the held-out examples of the source domains, and of inputs; higher is more unlike the known ones."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("choose", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/novelty_features"))
    parser.add_argument("--runs", type=Path, default=Path("runs/novelty_features"))
    parser.add_argument("--sets", nargs="+")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    names = chosen.sets or (CHOICE if chosen.stage == "choose" else CHOICE + CONFIRMATION)
    stage = _choose if chosen.stage == "choose" else _measure
    found = {name: list(stage(Data.open(chosen.folder, name), chosen.runs / name)) for name in names}
    summary = _choice(found) if chosen.stage == "choose" else _summary(found)
    if chosen.sets is None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        document = _rounded({"summary": summary, "cases": found, "environment": environment()})
        (chosen.out / f"{chosen.stage}.json").write_text(json.dumps(document, indent=1) + "\n")
    for name, row in summary.items():
        print(name, json.dumps(_rounded(row)))


@dataclass(frozen=True)
class Data:
    """A set as it was read."""

    config: DataConfig
    examples: Examples

    @classmethod
    def open(cls, folder: Path, name: str) -> "Data":
        """Read a table or arrays."""
        table = folder / f"{name}.csv"
        config = FeatureTable(path=str(table)) if table.exists() else Arrays(path=str(folder / f"{name}.npz"))
        return cls(config, config.load())


@dataclass(frozen=True)
class Seen:
    """What a model makes of rows: the input of its encoder, the encoder's features and the probabilities."""

    inputs: Tensor
    features: Tensor
    probabilities: Tensor


@dataclass(frozen=True)
class Trained:
    """A finished run, with the bank that ``messi serve`` builds of it."""

    data: Data
    model: Model
    loader: Loader
    known: KnownDomains

    @classmethod
    def of(cls, data: Data, targets: tuple[str, ...], method: str, runs: Path) -> "Trained":
        """Train without the targets, and build the bank."""
        config = RunConfig(data=data.config, target=targets, algorithm=ALGORITHMS.config(method)())
        name = "_".join((method, *targets))
        path = run(config, out=runs / name, device="cpu", load=lambda: data.examples).path
        model = load(path)
        _, loader = reopen(path, device="cpu")
        return cls(data, model, loader, known_domains(path, model))

    def held_out(self) -> list[Tensor]:
        """Return the validation examples of every source domain."""
        return [self.loader.data.indices("source_val", domain) for domain in self.loader.data.domains("source_val")]

    def banked(self) -> Tensor:
        """Return the examples in the bank."""
        parts = self.held_out()
        most = min(PER_DOMAIN, IN_ALL // len(parts))
        rows = torch.cat([part[spaced(len(part), most)] for part in parts])
        torch.testing.assert_close(self.points(self.raw(rows)), self.known.bank.points)
        return rows

    def raw(self, rows: Tensor) -> Tensor:
        """Return rows as they were read."""
        inputs = self.data.examples.inputs
        assert isinstance(inputs, Tensor)
        return inputs[rows]

    def see(self, values: Tensor) -> Seen:
        """Encode and predict raw rows."""
        inputs = self.model.encode(Rows(values, self.data.examples.columns))
        prediction, features = predict_and_encode(self.model.algorithm, inputs.split(64))
        assert features is not None
        return Seen(inputs, features, prediction.logits.softmax(-1))

    def points(self, values: Tensor) -> Tensor:
        """Return what ``messi serve`` compares raw rows by."""
        seen = self.see(values)
        found = points_of(self.model, seen.inputs, seen.features)
        assert found is not None
        return found

    def distance(self, values: Tensor) -> Tensor:
        """Return the distances of raw rows that ``messi serve`` gives."""
        return self.known.bank.judge(self.points(values)).distance

    def warned(self, values: Tensor) -> Tensor:
        """Return which raw rows get a warning."""
        return self.distance(values) > self.known.threshold

    def rows_of(self, domain: str) -> Tensor:
        """Return the examples of a domain."""
        return (self.data.examples.domains == self.data.examples.domain_names.index(domain)).nonzero().squeeze(1)


# Choosing: source domains that neither the encoder nor the bank has seen.


def _choose(data: Data, runs: Path) -> Iterator[dict[str, Any]]:
    for pair in itertools.combinations(data.examples.domain_names, 2):
        for method in METHODS:
            trained = Trained.of(data, pair, method, runs)
            for left in pair:
                yield {"left_out": left, "without": pair, "method": method, "auroc": _areas(trained, left)}


def _choice(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the AUROC of every score, and its lead over messi's earlier one with the standard error over sets."""
    by_set = {
        name: {score: float(np.mean([case["auroc"][score] for case in cases])) for score in cases[0]["auroc"]}
        for name, cases in found.items()
    }
    rows: dict[str, Any] = {}
    for score in next(iter(by_set.values())):
        leads = [areas[score] - areas[BEFORE] for areas in by_set.values()]
        rows[score] = {
            "mean": float(np.mean([areas[score] for areas in by_set.values()])),
            "lead": float(np.mean(leads)),
            "standard_error": float(np.std(leads, ddof=1) / np.sqrt(len(leads))) if len(leads) > 1 else None,
            **{name: areas[score] for name, areas in by_set.items()},
        }
    return dict(sorted(rows.items(), key=lambda item: -item[1]["mean"]))


def _areas(trained: Trained, unseen: str) -> dict[str, float]:
    """Return the AUROC of every score: held-out examples of the source domains against an unseen domain."""
    rows = trained.rows_of(unseen)
    raw = trained.raw(rows[spaced(len(rows), MOST)])
    scores = _scores(trained.see(trained.raw(trained.banked())), trained.see(raw))
    product = trained.known.bank.without_self().distance, trained.distance(raw)
    torch.testing.assert_close(product, scores[CHOSEN], rtol=1e-5, atol=1e-5)
    return {name: auroc(*found) for name, found in scores.items()}


def _scores(known: Seen, inputs: Seen) -> Scores:
    return {
        BEFORE: _cosine_and_length(known.features, inputs.features),
        "cosine, features": _nearest(_unit(known.features), _unit(inputs.features)),
        "Euclidean, features": _nearest(known.features, inputs.features),
        "Mahalanobis, features": _mahalanobis(known.features, inputs.features),
        "cosine, inputs": _nearest(_unit(known.inputs), _unit(inputs.inputs)),
        "Euclidean, inputs": _nearest(known.inputs, inputs.inputs),
        "Mahalanobis, inputs": _mahalanobis(known.inputs, inputs.inputs),
        "1 - highest probability": (1 - known.probabilities.amax(1), 1 - inputs.probabilities.amax(1)),
    }


def _nearest(known: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean Euclidean distance to the nearest known rows, of which a known row is none itself."""
    known, inputs = known.double(), inputs.double()
    return _smallest(torch.cdist(known, known).fill_diagonal_(torch.inf)), _smallest(torch.cdist(inputs, known))


def _cosine_and_length(known: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same by the cosine distance; inputs longer than all known rows are farther away by the log ratio."""
    unit, longer = _unit(known), (inputs.norm(dim=1) / known.norm(dim=1).max()).clamp(min=1).log()
    own = _smallest((1 - unit @ unit.mT).fill_diagonal_(torch.inf))
    return own, _smallest(1 - _unit(inputs) @ unit.mT) + longer


def _smallest(apart: Tensor) -> Tensor:
    return apart.topk(min(NEIGHBOURS, len(apart.mT) - 1), largest=False).values.mean(1)


def _mahalanobis(known: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distance to the mean, with a shrunk covariance; known rows are not among those it is fitted to."""
    own, fold = torch.zeros(len(known), dtype=torch.float64), torch.arange(len(known)) % FOLDS
    for part in fold.unique():
        fitted = LedoitWolf().fit(known[fold != part].double().numpy())
        own[fold == part] = torch.from_numpy(fitted.mahalanobis(known[fold == part].double().numpy()))
    fitted = LedoitWolf().fit(known.double().numpy())
    return own, torch.from_numpy(fitted.mahalanobis(inputs.double().numpy()))


def _unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows, dim=1)


# Measuring: targets, and rows that a service may meet.


def _measure(data: Data, runs: Path) -> Iterator[dict[str, Any]]:
    for target in data.examples.domain_names:
        for method in METHODS:
            trained = Trained.of(data, (target,), method, runs)
            quality, inside = trained.known.quality, trained.known.bank.without_self().distance
            assert (inside <= trained.known.threshold).float().mean() >= ACCEPTED - 1 / len(inside)
            yield {
                "target": target,
                "method": method,
                "bank": len(inside),
                "threshold": trained.known.threshold,
                "unseen": vars(quality.target[target]),
                "left_out": {name: vars(found) for name, found in quality.left_out.items()},
                "nearest_right": quality.nearest_right,
                "known_warned": _known_warned(trained),
                "damaged_warned": _damaged(trained),
                "accuracy": _accuracy(trained, trained.rows_of(target)),
                "auroc": _areas(trained, target),
            }


def _known_warned(trained: Trained) -> dict[str, float | None]:
    """Return how many held-out source rows get a warning: those beyond the bank, and half of it by the other half."""
    bank, rows = trained.known.bank, trained.banked()
    beyond = torch.cat(trained.held_out())
    beyond = beyond[~torch.isin(beyond, rows)]
    half = Bank(bank.points[::2], bank.domains[::2])
    return {
        "beyond_the_bank": _mean(trained.warned(trained.raw(beyond))) if len(beyond) else None,
        "other_half": _mean(half.judge(bank.points[1::2]).distance > half.threshold()),
    }


def _damaged(trained: Trained) -> dict[str, float]:
    """Return how many rows get a warning that were made of held-out source rows, or of nothing."""
    rng = np.random.default_rng(0)
    rows = torch.cat(trained.held_out())
    raw = trained.raw(rows[spaced(len(rows), MOST)]).double()
    columns = trained.data.examples.columns
    number = np.array([not columns or columns[place].categories is None for place in range(raw.shape[1])])
    usable = number & raw.isfinite().numpy() & (raw != 0).numpy()
    some = usable.any(1).nonzero()[0]
    cell = torch.tensor([[row, rng.choice(usable[row].nonzero()[0])] for row in some])
    absurd, large = raw.clone(), raw.clone()
    absurd[cell[:, 0], cell[:, 1]] *= 1e6
    large[cell[:, 0], cell[:, 1]] *= 10
    mixed = torch.stack([raw[rng.permutation(len(raw)), place] for place in range(raw.shape[1])], dim=1)
    values = raw.numpy()
    noise = rng.normal(np.nanmean(values, 0), np.nanstd(values, 0), raw.shape)
    for place in (~number).nonzero()[0]:
        noise[:, place] = rng.integers(0, len(columns[place].categories or ()), len(raw))
    made = {
        "one number times 10": large[some],
        "one number times 1e6": absurd[some],
        "cells of different rows": mixed,
        "noise": torch.from_numpy(noise),
        "all missing": torch.full((1, raw.shape[1]), torch.nan, dtype=torch.float64),
    }
    return {what: _mean(trained.warned(values)) for what, values in made.items()}


def _accuracy(trained: Trained, rows: Tensor) -> dict[str, float | None]:
    """Return the accuracy with and without a warning, and how well the distance tells wrong classes from right ones."""
    seen, examples = trained.see(trained.raw(rows)), trained.data.examples
    distance = trained.distance(trained.raw(rows))
    right = seen.probabilities.argmax(1) == examples.labels[rows]
    warned, both = distance > trained.known.threshold, 0 < int(right.sum()) < len(right)
    doubt = 1 - seen.probabilities.amax(1)
    return {
        "warned_share": _mean(warned),
        "warned": _mean(right[warned]) if warned.any() else None,
        "not_warned": _mean(right[~warned]) if not warned.all() else None,
        "errors_by_distance": auroc(distance[right], distance[~right]) if both else None,
        "errors_by_probability": auroc(doubt[right], doubt[~right]) if both else None,
    }


def _summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return, for every set, the means over targets and methods."""
    return {name: _means([_flat(case) for case in cases]) for name, cases in found.items()}


def _flat(case: dict[str, Any]) -> dict[str, float | None]:
    left = [one["auroc"] for one in case["left_out"].values()]
    return {
        "bank": case["bank"],
        "warned": case["accuracy"]["warned_share"],
        "auroc": case["unseen"]["auroc"],
        "left_out_auroc": float(np.mean(left)) if left else None,
        "left_out_warned": float(np.mean([one["warned"] for one in case["left_out"].values()])) if left else None,
        "nearest_right": case["nearest_right"],
        **{f"known_{name}": value for name, value in case["known_warned"].items()},
        **case["damaged_warned"],
        **{f"accuracy_{name}": value for name, value in case["accuracy"].items() if name != "warned_share"},
        **{f"auroc of {name}": value for name, value in case["auroc"].items()},
    }


def _means(rows: list[dict[str, float | None]]) -> dict[str, float | None]:
    values = {name: [value for row in rows if (value := row[name]) is not None] for name in rows[0]}
    return {name: float(np.mean(found)) if found else None for name, found in values.items()}


def _mean(values: Tensor) -> float:
    return float(values.double().mean())


def _rounded(value: Any) -> Any:
    """Return a document with four decimals, which is more than the data can tell."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
