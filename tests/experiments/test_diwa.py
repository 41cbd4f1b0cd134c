"""DiWA: the draws, what the runs share, and the table."""

from collections import Counter
from pathlib import Path

import pytest

from messi.algorithms.erm import ERM
from messi.engine.config import TrainingConfig
from messi.experiments import diwa
from messi.experiments.common import ablation
from messi.experiments.common.benchmarks import Benchmark
from messi.experiments.diwa import Diwa
from messi.reports.table import Table
from messi.studies.common.results import Results
from messi.sweeps.one_run import do_run
from messi.sweeps.plan import Plan, PlannedAverage, PlannedRun
from tests.studies.made_runs import cell_of

from .tiny_scale import TINY


def test_the_runs_of_an_average_share_start_and_split_and_differ_in_seed_and_draw() -> None:
    plan = Plan(Path("plan"), Diwa(seeds=2).runs())
    assert [len(stage.runs) for stage in plan.stages()] == [16, 320, 32]
    names = {run.name: run for run in plan.runs}
    rates: Counter[float] = Counter()
    for average in plan.stages()[-1].runs:
        assert isinstance(average, PlannedAverage)
        configs = [member.config for member in average.members]
        assert len(configs) == len({config.seed for config in configs}) == 20
        (start,) = {config.start for config in configs}
        probe = names[str(start)].config
        assert probe.training.steps == probe.training.probe_steps == 500
        assert {(config.split_seed, config.target) for config in configs} == {(probe.seed, probe.target)}
        rates.update(config.training.learning_rate for config in configs)
        assert {config.training.weight_decay for config in configs} == {1e-4, 1e-6}
    assert rates.keys() == {1e-5, 3e-5, 5e-5}
    draws = {(run.config.seed, run.config.training.learning_rate) for run in plan.stages()[1].runs}
    assert len(draws) == 40, "methods and targets have the same draws"


def test_the_table_has_single_runs_and_averages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_target = Benchmark("two_subsets", "Two subsets", TINY.data, {"b2": "B"})
    training = TrainingConfig(steps=8, evaluate_every=4, batch_per_domain=8)
    for name, value in {"SMALL": one_target, "SMALL_BACKBONE": "identity", "SMALL_TRAINING": training}.items():
        monkeypatch.setattr(ablation, name, value)
    monkeypatch.setattr(diwa, "METHODS", {"ERM": ERM.Config()})
    experiment = Diwa(scale="small")
    plan = Plan(tmp_path, experiment.runs())
    for stage in plan.stages():
        for planned in stage.runs:
            assert do_run(planned.to_dict(), plan.path(planned), "cpu") is None
    results = Results(plan.outcomes())
    table, _ = experiment.report(results)
    assert isinstance(table, Table)
    members = [outcome for outcome in results.outcomes if isinstance(outcome.run, PlannedRun)][1:]
    found = [outcome.result() for outcome in members]
    best = max(found, key=lambda result: sum(result.source_val.values()))
    expected = {
        "single runs, mean": sum(result.target["b2"] for result in found) / 3,
        "single run, best by validation": best.target["b2"],
        "uniform average": results.outcomes[4].result().target["b2"],
        "greedy average": results.outcomes[5].result().target["b2"],
    }
    for row, accuracy in expected.items():
        for column in ("B", "Avg."):
            cell = cell_of(table, column, "ERM", row)
            assert cell.ours is not None
            assert cell.ours.mean == pytest.approx(100 * accuracy)
    validation = cell_of(table, "validation", "ERM", "single run, best by validation").ours
    assert validation is not None
    assert validation.mean == pytest.approx(100 * sum(best.source_val.values()) / len(best.source_val))
