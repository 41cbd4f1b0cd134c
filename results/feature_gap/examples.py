"""Whether the difference to logistic regression is chance in the choice of a target's examples.

python examples.py SET.npz, writes the runs of the default below the folder 'runs'
"""

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from messi.data.datasets.arrays import Arrays
from messi.engine.evaluate import reopen
from messi.engine.recipes import recipe
from messi.engine.run import run
from messi.experiments.feature_defaults import PENALTIES

SEEDS, DRAWS = (0, 1, 2), 10_000


def differences(data: Arrays, target: str, seed: int) -> np.ndarray:
    """Return for every example of a target 1 if only the default is right, -1 if only logistic regression is."""
    folder = Path("runs") / f"{Path(data.path).stem}_{target}_{seed}"
    run(recipe("messi_swad", data=data, target=(target,), seed=seed), out=folder, device="cpu")
    model, loader = reopen(folder, device="cpu")
    parts = {
        role: [
            (loader.data.features(indices), loader.data.labels(indices))
            for domain in loader.data.domains(role)
            for indices in [loader.data.indices(role, domain)]
        ]
        for role in ("train", "source_val", "target")
    }
    inputs, labels = (torch.cat(part).numpy() for part in zip(*parts["train"], strict=True))
    models = [LogisticRegression(C=penalty, max_iter=1000).fit(inputs, labels) for penalty in PENALTIES]
    best = max(models, key=lambda one: np.mean([one.score(x.numpy(), y.numpy()) for x, y in parts["source_val"]]))
    ((x, y),) = parts["target"]
    with torch.no_grad():
        ours = model.algorithm.eval().predict(x).logits.argmax(1)
    return (ours == y).numpy().astype(float) - (best.predict(x.numpy()) == y.numpy())


def main(file: Path) -> None:
    """Print the difference and its interval over examples for every target, and for their mean."""
    data, random = Arrays(path=str(file)), np.random.default_rng(0)
    draws = []
    for target in sorted(set(np.load(file)["domains"].tolist())):
        points = 100 * np.mean([differences(data, target, seed) for seed in SEEDS], axis=0)
        draws.append([points[random.integers(len(points), size=len(points))].mean() for _ in range(DRAWS)])
        _show(target, len(points), draws[-1])
    _show("mean", len(draws), np.mean(draws, axis=0))


def _show(name: str, number: int, draws: object) -> None:
    print(f"{name:>20} {number:6} {np.mean(draws):6.2f}", *np.percentile(draws, [2.5, 97.5]).round(2))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
