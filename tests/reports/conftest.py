"""Runs that several test files read."""

from pathlib import Path

import pytest

from .helpers import Sample

FULL = {("art", 0): 0.5, ("art", 1): 0.6, ("photo", 0): 0.9, ("photo", 1): 0.8}
PART = {("art", 0): 0.7, ("photo", 0): 0.7, ("photo", 1): 0.9}


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Runs of two methods that hold out each domain in turn; CORAL lacks a seed of one domain."""
    return [
        Sample(algorithm=algorithm, experts=(), seed=seed, targets={domain: accuracy}, images=False).write(
            tmp_path / f"{algorithm}-{domain}-{seed}"
        )
        for algorithm, accuracies in {"erm": FULL, "coral": PART}.items()
        for (domain, seed), accuracy in accuracies.items()
    ]
