"""The sentences and facts at the top of a page."""

from pathlib import Path

from messi.reports.result_tables import (
    result_rows,
)
from messi.reports.runs import read_run
from messi.reports.summary_text import facts, summary, title

from .helpers import Sample


def summary_of(*paths: Path) -> str:
    runs = [read_run(path) for path in paths]
    return summary(runs, result_rows(runs)).replace("\u00a0", " ")


def test_the_summary_of_one_run(tmp_path: Path) -> None:
    one = Sample().write(tmp_path / "a")
    assert summary_of(one) == (
        "Trained on 2 source domains, messi reaches 62.5 % accuracy on the held-out domain sketch (40 examples)."
    )


def test_the_summary_of_seeds_gives_mean_and_sample_deviation(tmp_path: Path) -> None:
    erm = Sample(algorithm="erm", experts=(), targets={"sketch": 0.5}).write(tmp_path / "erm")
    seeds = [Sample(seed=s, targets={"sketch": 0.6 + 0.02 * s}).write(tmp_path / f"{s}") for s in range(3)]
    # The deviation of 60, 62, 64 is 2.0 when divided by n - 1, and 1.6 when divided by n.
    assert summary_of(erm, *seeds) == (
        "Accuracy on the held-out domain sketch (40 examples): erm 50.0 % and messi 62.0 ± 2.0 % (n = 3 runs); ± is "
        "the sample standard deviation over runs."
    )


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(tmp_path: Path) -> None:
    paths = [Sample(settings={"num_experts": m}, targets={"sketch": m / 10}).write(tmp_path / str(m)) for m in (2, 4)]
    assert summary_of(*paths) == (
        "2 runs with different settings reach 20.0 % to 40.0 % accuracy on domains that were held out of training."
    )


def test_the_title_names_methods_and_data(tmp_path: Path) -> None:
    paths = [Sample(algorithm=name).write(tmp_path / name) for name in ("erm", "coral", "messi")]
    assert title([read_run(path) for path in paths]) == "erm, coral and messi on pets"


def test_the_summary_of_domains_held_out_in_turn(paths: list[Path]) -> None:
    runs = [read_run(path) for path in paths]
    assert summary(runs, result_rows(runs)).replace("\u00a0", " ") == (
        "Mean accuracy over 2 domains, each held out in turn: erm 70.0 ± 0.0 % (2 seeds; worst domain art, 55.0 %)."
    )


def test_the_facts_state_what_was_run(paths: list[Path]) -> None:
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


def test_the_summary_without_target(tmp_path: Path) -> None:
    alone = Sample(targets={}).write(tmp_path / "a")
    known = "reaches 85.0 % accuracy on the validation data."
    unknown = "so the accuracy on a new domain is unknown"
    assert summary_of(alone) == f"No domain was held out, {unknown}; messi {known}"
    erm = Sample(algorithm="erm", experts=()).write(tmp_path / "erm")
    assert summary_of(erm, alone) == f"Not every run held out a domain, {unknown}; erm {known}"


def test_the_summary_of_several_targets(tmp_path: Path) -> None:
    path = Sample(targets={"sketch": 0.5, "cartoon": 0.6}).write(tmp_path / "a")
    assert summary_of(path).endswith("on the held-out domains sketch and cartoon (mean over domains, 80 examples).")


def test_a_recipe_is_a_fact_only_if_every_run_follows_one(tmp_path: Path) -> None:
    plain = read_run(Sample(seed=1).write(tmp_path / "a"))
    named = read_run(Sample(seed=2, result={"recipe": "paper"}).write(tmp_path / "b"))
    assert [facts(runs)["Recipe"] for runs in ([named], [plain, named], [plain])] == ["paper", "", ""]
