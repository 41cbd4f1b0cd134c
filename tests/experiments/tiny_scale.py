"""The small scale of the ablations, reduced until a run takes half a second."""

from pathlib import Path

import pytest

from messi.algorithms.common.base import Algorithm
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.loader import Loader
from messi.engine.config import TrainingConfig
from messi.engine.evaluate import reopen
from messi.engine.run import run
from messi.experiments.common import ablation
from messi.experiments.common.base import Experiment
from messi.experiments.common.benchmarks import Benchmark
from messi.studies.common.results import Results
from messi.sweeps.plan import Outcome, Plan

TINY = Benchmark("two_subsets", "Two subsets", TwoSubsets(per_domain=60), {"b2": "B", "a1": "A"})


def reopened(outcome: Outcome) -> tuple[Algorithm, Loader]:
    """Return the model of a run and its data."""
    model, loader = reopen(outcome.path)
    return model.algorithm, loader


def tiny_results(folder: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch, *, runs: int = 99) -> Results:
    """Train the first runs of an experiment at the small scale, on four domains with three features."""
    monkeypatch.setattr(ablation, "SMALL", TINY)
    monkeypatch.setattr(ablation, "SMALL_BACKBONE", "identity")
    training = TrainingConfig(steps=8, evaluate_every=8, batch_per_domain=8)
    monkeypatch.setattr(ablation, "SMALL_TRAINING", training)
    plan = Plan(folder, experiment.runs())
    for planned in plan.runs[:runs]:
        run(planned.config, out=plan.path(planned), device="cpu")
    return Results(plan.outcomes())
