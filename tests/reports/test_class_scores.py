"""What pages show next to accuracy if classes are unbalanced."""

from pathlib import Path

from messi.core.records import ClassScores
from messi.reports.class_scores import class_scores_table
from messi.reports.page import write_report
from messi.reports.runs import read_run
from messi.reports.table import Table

from .helpers import Sample

SCORES = ClassScores(balanced_accuracy=0.345, macro_f1=0.311, majority_share=0.8)


def rows(table: Table | None) -> list[tuple[str, ...]]:
    assert table is not None
    return [(*row.heads, *(f"{cell.ours.mean:.1f}" for cell in row.cells if cell.ours)) for row in table.rows]


def test_every_domain_and_role_of_a_run_has_a_row_the_target_first(tmp_path: Path) -> None:
    run = read_run(Sample(class_scores=SCORES, images=False).write(tmp_path / "a"))
    scores = ("34.5", "31.1", "80.0")
    assert rows(class_scores_table([run])) == [
        ("sketch", "target, unseen", "62.5", *scores),
        ("photo", "source, validation part", "80.0", *scores),
        ("art", "source, validation part", "90.0", *scores),
    ]


def test_several_runs_are_named_and_those_of_earlier_versions_are_left_out(tmp_path: Path) -> None:
    samples = [Sample(class_scores=SCORES if seed else None, seed=seed, images=False) for seed in range(3)]
    runs = [read_run(sample.write(tmp_path / str(place))) for place, sample in enumerate(samples)]
    found = rows(class_scores_table(runs))
    assert [row[:3] for row in found[:2]] == [
        ("sketch", "target, unseen", "messi, seed 1"),
        ("sketch", "target, unseen", "messi, seed 2"),
    ]
    assert len(found) == 6
    assert class_scores_table(runs[:1]) is None


def test_a_page_says_it_first_and_shows_the_table_only_for_unbalanced_classes(tmp_path: Path) -> None:
    for name, scores in (("unbalanced", SCORES), ("balanced", None)):
        write_report([Sample(class_scores=scores).write(tmp_path / name)], tmp_path / f"{name}.html")
    page, balanced = ((tmp_path / f"{name}.html").read_text() for name in ("unbalanced", "balanced"))
    assert 'id="class-scores"' in page
    assert "most frequent class would reach 80.0\u00a0% accuracy." in page
    assert "which is the accuracy of always predicting it." in page
    assert "class-scores" not in balanced
    assert "nbalanced" not in balanced
