"""What changes accuracy on source domains left out, two at a time, with ERM averaged by SWAD.

python tried.py SET.npz, writes the runs below the folder 'runs'
"""

import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from messi.data.datasets.arrays import Arrays
from messi.engine.recipes import recipe
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

TRIED: dict[str, dict[str, Any]] = {
    "default": {},
    "learning rate 1e-3": {"learning_rate": 1e-3},
    "learning rate 5e-4": {"learning_rate": 5e-4},
    "weight decay 1e-2": {"weight_decay": 1e-2},
    "600 steps": {"steps": 600, "evaluate_every": 40},
    "128 examples per domain": {"batch_per_domain": 128},
    "the same at 1e-3": {"batch_per_domain": 128, "learning_rate": 1e-3},
    "no hidden layer": {"encoder": EncoderConfig(backbone="identity")},
}


def main(file: Path) -> None:
    """Print the mean accuracy of every setting, and its difference to the default with its standard error."""
    domains = sorted(set(np.load(file)["domains"].tolist()))
    blocks = list(zip(domains, domains[1:] + domains[:1], strict=True))
    scores: dict[str, list[float]] = {}
    for name, settings in TRIED.items():
        for seed in (0, 1):
            for block in blocks:
                config = recipe("erm_swad", data=Arrays(path=str(file)), target=block, seed=seed, **settings)
                found = run(config, out=Path("runs") / f"{file.stem}_{name}_{'+'.join(block)}_{seed}", device="cpu")
                scores.setdefault(name, []).append(100 * statistics.fmean(found.target.values()))
        off = [one - other for one, other in zip(scores[name], scores["default"], strict=True)]
        numbers = statistics.fmean(scores[name]), statistics.fmean(off), statistics.stdev(off) / len(off) ** 0.5
        print(f"{name:>24} {len(off):3}", *(f"{number:6.2f}" for number in numbers))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
