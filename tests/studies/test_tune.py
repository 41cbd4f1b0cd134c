"""Searches on four domains with three features: what is planned, chosen, paused, killed and resumed."""

import dataclasses
import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from messi.cli.common.plan_command import Execution, run_study
from messi.cli.train import parse
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord
from messi.core.rundir import RunDir
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import TrainingConfig
from messi.engine.run import run
from messi.models.encoder import EncoderConfig
from messi.reports.table import Table
from messi.studies.common.hold_out import Task
from messi.studies.common.plan_file import read_plan
from messi.studies.common.results import Results
from messi.studies.tune import SearchConfig, Tune, train_command
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.one_run import do_run
from messi.sweeps.plan import Outcome, Plan
from tests.studies.made_runs import cell_of

DOMAINS = ("a1", "a2", "b1", "b2")
DATA = TwoSubsets(per_domain=60)


def tune(**options: object) -> Tune:
    training = TrainingConfig(steps=9, evaluate_every=1, log_every=1, batch_per_domain=8)
    given = {
        "task": Task(data=DATA, hold_out=(("b2",),)),
        "domains": DOMAINS,
        "methods": ("erm",),
        "search": ("batch_per_domain=8..16", "learning_rate=0.003..1"),
        "encoder": EncoderConfig(backbone="identity"),
        "training": training,
    }
    return Tune(**(given | options))  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Here(Launcher):
    """Does one run after another in this process, and is killed after some of them."""

    left: ClassVar[list[int]] = []
    """How many runs it does before each kill."""

    def launch(self, plan: Plan, on_end: Callable[[Outcome], None]) -> None:
        for planned in plan.unfinished():
            if self.left:
                self.left[0] -= 1
                if self.left[0] < 0:
                    self.left.pop(0)
                    raise KeyboardInterrupt
            on_end(plan.record_end(planned, do_run(planned.to_dict(), plan.path(planned), "cpu")))


HERE = Execution(launcher="here", environment=Here())


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of every run, except its timing and its checkpoint."""
    runs = (file for file in (folder / "runs").rglob("*") if file.is_file())
    left_out = ("timing.json", "lock")
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in runs
        if file.name not in left_out and "tensorboard" not in file.parts
    }


def mean_of(table: Table, column: str, *heads: str) -> float:
    ours = cell_of(table, column, *heads).ours
    assert ours is not None
    return ours.mean


def test_halving_gives_the_runs_of_a_full_search_and_survives_two_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tune(draws=9, halving=True)
    assert run_study(study, tmp_path / "whole", HERE) == 0
    outcomes = study.plan(tmp_path / "whole").outcomes()
    paused = {outcome.run.until for outcome in outcomes}
    assert [outcome.run.until for outcome in outcomes].count(1) == 6
    assert (paused, [outcome.state for outcome in outcomes].count("done")) == ({1, 3, None}, 1)
    for outcome in outcomes:
        undisturbed = run(outcome.run.config, out=tmp_path / "full" / outcome.run.name, device="cpu").path
        found, expected = RunDir(outcome.path), RunDir(undisturbed)
        assert expected.records.read_bytes().startswith(found.records.read_bytes())
        if outcome.state == "done":
            assert found.result.read_bytes() == expected.result.read_bytes()
            assert found.model.read_bytes() == expected.model.read_bytes()

    monkeypatch.setattr(Here, "left", [4, 7])  # the second kill is after the first comparison
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_study(study, tmp_path / "killed", HERE)
    assert run_study(read_study(tmp_path / "killed"), tmp_path / "killed", HERE) == 0
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert "paused early" in (tmp_path / "killed" / "tables" / "README.md").read_text()


def read_study(folder: Path) -> Tune:
    study = read_plan(folder)
    assert isinstance(study, Tune)
    return study


def test_leave_one_domain_out_adds_runs_and_chooses_by_them(tmp_path: Path) -> None:
    study = tune(draws=2, rule="leave_one_out", seeds=1)
    planned = {run.config.target for run in study.runs()}
    assert planned == {("b2",), ("a1", "b2"), ("a2", "b2"), ("b1", "b2")}
    assert run_study(study, tmp_path, HERE) == 0
    results = Results(study.plan(tmp_path).outcomes())
    scores = {}
    for draw in range(2):
        folds = [
            o.result().target[o.run.config.target[0]] for o in results.where(draw=draw) if o.labels["target"] != "b2"
        ]
        scores[draw] = statistics.fmean(folds)
    accuracy, draws, *_ = study.report(results)
    assert isinstance(accuracy, Table)
    assert isinstance(draws, Table)
    chosen = max(sorted(scores), key=lambda draw: scores[draw])
    (best,) = results.where(draw=chosen, target="b2")
    assert mean_of(draws, "Draw", "erm", "b2") == chosen
    assert mean_of(draws, "Score %", "erm", "b2") == pytest.approx(100 * scores[chosen])
    assert mean_of(accuracy, "b2", "erm") == pytest.approx(100 * best.result().target["b2"])
    every = tune(rule="leave_one_out", task=Task(data=DATA, hold_out=tuple((name,) for name in DOMAINS)))
    held = {frozenset(run.config.target) for run in every.runs()}
    assert held == {frozenset(pair) for size in (1, 2) for pair in itertools.combinations(DOMAINS, size)}


def test_the_oracle_reads_the_other_part_of_the_target_after_the_last_step_and_is_marked(tmp_path: Path) -> None:
    study = tune(draws=2, rule="oracle", seeds=2)
    assert run_study(study, tmp_path, HERE) == 0
    results = Results(study.plan(tmp_path).outcomes())
    scores: dict[int, list[float]] = {}
    for outcome in results.outcomes:
        assert outcome.result().selected_step == 9
        measured = [r for r in RunDir(outcome.path).read_records() if isinstance(r, EvaluationRecord)]
        (record,) = [r for r in measured if r.role == "target_val"]
        (test,) = [r for r in measured if r.role == "target"]
        assert (record.step, record.domain, record.count + test.count) == (9, "b2", 60)
        scores.setdefault(int(outcome.labels["draw"]), []).append(record.accuracy)
    _, draws, *_ = study.report(results)
    assert isinstance(draws, Table)
    means = {draw: statistics.fmean(values) for draw, values in scores.items()}
    assert mean_of(draws, "Score %", "erm", "b2") == pytest.approx(100 * max(means.values()))
    for name in ("accuracy.md", "accuracy.tex", "accuracy.csv", "draws.md", "domainbed.md", "domainbed.tex"):
        assert "ORACLE" in (tmp_path / "tables" / name).read_text()
    assert "chosen by labels of the target" in (tmp_path / "tables" / "README.md").read_text()
    planned = study.runs()[0].config
    whole = dataclasses.replace(planned, training=dataclasses.replace(planned.training, target_part="all"))
    with pytest.raises(MessiError, match=r"selection 'oracle' requires a target .* add --target-part in"):
        run(whole, out=tmp_path / "whole", device="cpu")
    usual = tune(draws=2, seeds=2).report(Results(tune(draws=2, seeds=2).plan(tmp_path).outcomes()))
    assert all("oracle" not in str(section).lower() for section in usual)


def test_the_printed_options_train_the_chosen_draw(tmp_path: Path) -> None:
    study = tune(draws=4, methods=("messi ssi_weight=0.5", "erm"), search=("averaging=ma,ema", "num_experts=2..3"))
    for method in study.by_label:
        for number in range(4):
            drawn = study.drawn(method, number)
            words = train_command(drawn)
            assert words[:2] == ["messi", "train"]
            assert parse(words[2:]).config == drawn.resolved()
    assert {study.drawn("messi ssi_weight=0.5", k).algorithm.to_dict()["ssi_weight"] for k in range(4)} == {0.5}
    first, second = (study.drawn(method, 3).training for method in study.by_label)
    assert first == second  # methods share the draws of shared fields
    assert not (tmp_path / "runs").exists()


def test_domains_and_ranges_that_cannot_be_searched_are_named() -> None:
    config = SearchConfig(data="two_subsets", methods=("erm",), draws=2)
    assert [run.config.target for run in config.study().runs()][:4] == [(name,) for name in DOMAINS]
    wrong: list[tuple[dict[str, object], str]] = [
        ({"search": ("learning_rate=1..0.1",)}, "is an empty range"),
        ({"search": ("ssi_weight=1,2",)}, "no hyper-parameter named 'ssi_weight'"),
        ({"halving": True, "rule": "oracle"}, "Halving compares draws by source validation"),
        ({"hold_out": ("a1+a2+b1",), "rule": "leave_one_out"}, "at least two source domains are required"),
        ({"hold_out": ("9",)}, "at most the number of domains, which is 4"),
        ({"methods": ()}, "requires at least one method"),
        ({"data": ""}, "name a data set, a folder or a file with --data"),
    ]
    for options, words in wrong:
        with pytest.raises(MessiError) as error:
            dataclasses.replace(config, **options).study()  # type: ignore[arg-type]
        assert words in str(error.value)
