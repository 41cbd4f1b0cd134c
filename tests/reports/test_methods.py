from pathlib import Path

import pytest

from messi.reports.methods import MethodTable, group_by_method, method_table
from messi.reports.runs import read_run
from messi.reports.statistics import Summary
from messi.reports.summary_text import facts, summary
from messi.reports.tables import result_rows

from .helpers import Sample


def held_out(folder: Path, algorithm: str, accuracies: dict[tuple[str, int], float]) -> list[Path]:
    samples = {
        (target, seed): Sample(algorithm=algorithm, experts=(), seed=seed, targets={target: accuracy}, images=False)
        for (target, seed), accuracy in accuracies.items()
    }
    return [sample.write(folder / f"{algorithm}-{target}-{seed}") for (target, seed), sample in samples.items()]


FULL = {("art", 0): 0.5, ("art", 1): 0.6, ("photo", 0): 0.9, ("photo", 1): 0.8}
PART = {("art", 0): 0.7, ("photo", 0): 0.7, ("photo", 1): 0.9}


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [*held_out(tmp_path, "erm", FULL), *held_out(tmp_path, "coral", PART)]


def table_of(paths: list[Path]) -> MethodTable:
    table = method_table([read_run(path) for path in paths])
    assert table is not None
    return table


def close(mean: float, spread: float | None, n: int) -> Summary:
    return Summary(pytest.approx(mean), None if spread is None else pytest.approx(spread), n)  # type: ignore[arg-type]


def test_runs_of_one_method_are_averaged_over_seeds(paths: list[Path]) -> None:
    table = table_of(paths)
    assert table.targets == ("art", "photo")
    erm, coral = table.rows
    deviation = 0.1 / 2**0.5  # of two values that are 0.1 apart, divided by n - 1
    assert erm.targets == (close(0.55, deviation, 2), close(0.85, deviation, 2))
    assert erm.average == close(0.7, 0, 2)  # both seeds have the same average over targets
    assert erm.worst is not None
    assert (erm.worst.target, erm.worst.summary) == ("art", close(0.55, deviation, 2))
    assert erm.validation == close(0.85, 0, 2)
    assert (erm.runs, coral.runs) == (4, 3)
    assert coral.targets == (close(0.7, None, 1), close(0.8, 0.2 / 2**0.5, 2))


def test_an_average_over_missing_runs_stays_empty_and_the_best_are_known(paths: list[Path]) -> None:
    table = table_of(paths)
    assert table.rows[1].average is None
    assert table.rows[1].worst is None
    assert [table.best(0), table.best(1)] == pytest.approx([0.7, 0.85])
    assert table.best_average is None  # there is nothing to compare it with


def test_one_run_per_method_needs_no_second_table(tmp_path: Path) -> None:
    paths = [Sample(algorithm=name).write(tmp_path / name) for name in ("erm", "messi")]
    assert method_table([read_run(path) for path in paths]) is None


def test_a_domain_that_is_held_out_alone_and_with_others_has_no_column(tmp_path: Path) -> None:
    alone = [Sample(seed=seed).write(tmp_path / f"{seed}") for seed in (0, 1)]
    both = Sample(targets={"sketch": 0.5, "cartoon": 0.5}).write(tmp_path / "both")
    assert method_table([read_run(path) for path in [*alone, both]]) is None
    none = Sample(targets={}).write(tmp_path / "none")
    assert method_table([read_run(path) for path in [*alone, none]]) is None


def test_other_settings_make_another_method(tmp_path: Path) -> None:
    samples = [Sample(seed=s, settings={"ssi_weight": w}) for w in (0.01, 0.1) for s in (0, 1)]
    runs = [read_run(sample.write(tmp_path / f"{place}")) for place, sample in enumerate(samples)]
    groups = group_by_method(runs)
    assert {label: len(members) for label, members in groups.items()} == {
        "messi, ssi_weight 0.01": 2,
        "messi, ssi_weight 0.1": 2,
    }


def test_the_summary_of_domains_held_out_in_turn(paths: list[Path]) -> None:
    runs = [read_run(path) for path in paths]
    assert summary(runs, result_rows(runs)).replace("\u00a0", " ") == (
        "Correct on the mean over 2 domains, each held out of training in its turn: "
        "erm 70.0 ± 0.0 % (2 seeds; worst art, 55.0 %)."
    )


def test_the_facts_say_what_was_run(paths: list[Path]) -> None:
    found = facts([read_run(path) for path in paths])
    assert found["Methods"] == "erm (4 runs), coral (3 runs)"
    assert found["Held out"] == "art, photo"
    assert found["Seeds"] == "0, 1"
    assert found["Trained on"] == "2 source domains: photo, art"


def test_very_many_names_are_counted(tmp_path: Path) -> None:
    sources = {f"site{number}": (0.1, 0.2, 0.1) for number in range(20)}
    found = facts([read_run(Sample(sources=sources, images=False).write(tmp_path / "run"))])
    assert found["Trained on"].startswith("20 source domains: site0, site1,")
    assert found["Trained on"].endswith("site11 and 8 more")
