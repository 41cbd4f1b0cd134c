from pathlib import Path

import pytest

from messi.core.records import EvaluationRecord, RoleRecord, TrainRecord
from messi.reports.charts import Drawing
from messi.reports.curves import (
    MOST_POINTS,
    ValidationChart,
    domain_charts,
    growth_chart,
    loss_charts,
    thinned,
    validation_charts,
)
from messi.reports.page import write_report
from messi.reports.result_tables import result_rows
from messi.reports.runs import read_run

from .helpers import Sample


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    erm = Sample(algorithm="erm", experts=(), sources={"photo": (0.4, 0.6, 0.5)})
    return [Sample().write(tmp_path / "messi"), erm.write(tmp_path / "erm")]


def charts_of(paths: list[Path]) -> dict[str, Drawing]:
    return {chart.title: chart.drawing for chart in loss_charts([read_run(path) for path in paths])}


def curves_of(*paths: Path) -> list[ValidationChart]:
    runs = [read_run(path) for path in paths]
    return validation_charts(runs, result_rows(runs))


def by_macro_f1(path: Path) -> Path:
    """Write a run in which macro F1 is highest after the last step, and accuracy earlier."""
    more = [
        record
        for step, accuracy, macro_f1 in ((10, 0.5, 0.2), (20, 0.9, 0.1), (30, 0.7, 0.4))
        for record in (
            EvaluationRecord(step=step, role="unseen_val", domain="zoo", count=50, accuracy=accuracy, loss=0.5),
            RoleRecord(step=step, role="unseen_val", count=50, accuracy=accuracy, macro_f1=macro_f1),
        )
    ]
    chosen = {"selection": "unseen_val_macro_f1", "validation": "unseen_val", "selected_step": 30}
    return Sample(more=tuple(more), result=chosen).write(path)


def test_accuracy_has_a_line_per_run_and_a_point_per_evaluation(runs: list[Path]) -> None:
    chart = curves_of(*runs)[0].chart.drawing
    assert [(line.look, len(line.points)) for line in chart.lines] == [(0, 3), (1, 3)]


def test_accuracy_is_the_mean_over_sources_and_the_selected_step_is_marked(runs: list[Path]) -> None:
    chart = curves_of(*runs)[0].chart.drawing
    # 55, 85, 80 and 40, 60, 50 percent in a plot from 40 to 100.
    assert [tick.text for tick in chart.y_ticks] == ["40", "60", "80", "100"]
    assert [point.y for point in chart.lines[0].points] == pytest.approx([75, 25, 100 / 3], abs=0.001)
    assert [point.y for point in chart.lines[1].points] == pytest.approx([100, 200 / 3, 500 / 6], abs=0.001)
    for line in chart.lines:
        assert [point.x for point in line.points] == pytest.approx([100 / 3, 200 / 3, 100], abs=0.001)
        assert line.selected == line.points[1]


def test_a_run_that_macro_f1_selected_shows_macro_f1_with_the_ring_at_its_highest_point(tmp_path: Path) -> None:
    (curve,) = curves_of(by_macro_f1(tmp_path / "run"))
    assert curve.chart.title == "Macro F1 on the validation data, %"
    assert [stop.text.splitlines()[1] for stop in curve.chart.drawing.stops] == [
        f"messi: {v}.0 %" for v in (20, 10, 40)
    ]
    (line,) = curve.chart.drawing.lines
    assert line.selected == line.points[2] == min(line.points, key=lambda point: point.y)
    assert curve.selected == {0: 40.0}
    assert "(n = 50 examples). The ring marks the step selected by the rule “unseen_val_macro_f1”" in curve.caption
    write_report([tmp_path / "run"], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "selected: step 30, 40.0&nbsp;%" in page
    assert "Mean accuracy on the validation data" not in page


def test_runs_that_were_selected_by_different_metrics_have_a_chart_each(runs: list[Path], tmp_path: Path) -> None:
    accuracy, macro_f1 = curves_of(runs[0], by_macro_f1(tmp_path / "run"), runs[1])
    assert [line.look for line in accuracy.chart.drawing.lines] == [0, 2]
    assert accuracy.selected == pytest.approx({0: 85.0, 2: 60.0})
    assert "“source_val”" in accuracy.caption
    assert [line.look for line in macro_f1.chart.drawing.lines] == [1]
    assert "“unseen_val_macro_f1”" in macro_f1.caption


def test_averaged_weights_have_a_separate_accuracy_and_no_ring(tmp_path: Path) -> None:
    mean = EvaluationRecord(
        step=20, role="source_val", domain="photo", count=10, accuracy=0.95, loss=0.5, averaged=True
    )
    chosen = {"selection": "swad", "validation": "source_val", "averaged_steps": [5, 20]}
    (curve,) = curves_of(Sample(targets={}, more=(mean,), result=chosen).write(tmp_path / "run"))
    (line,) = curve.chart.drawing.lines
    assert line.selected is None
    assert len(line.points) == 3
    assert curve.selected == {0: 95.0}


def test_pointing_at_a_step_shows_every_value(runs: list[Path]) -> None:
    chart = curves_of(*runs)[0].chart.drawing
    assert chart.stops[1].text == "step 20\nmessi: 85.0 %\nerm: 60.0 %"
    ends = [stop.left + stop.width for stop in chart.stops]
    assert [stop.left for stop in chart.stops] == pytest.approx([0, *ends[:-1]], abs=0.002)
    assert ends[-1] == pytest.approx(100)


def test_loss_terms_have_a_chart_each_after_their_sum(runs: list[Path]) -> None:
    charts = charts_of(runs)
    assert list(charts) == ["loss (sum of the terms)", "cls", "ssi"]
    assert [line.look for line in charts["ssi"].lines] == [0]
    assert [line.look for line in charts["cls"].lines] == [0, 1]
    assert charts["loss (sum of the terms)"].stops[2].text == "step 30\nmessi: 0.53\nerm: 0.5"


def test_a_single_term_is_not_drawn_twice(runs: list[Path]) -> None:
    assert list(charts_of(runs[1:])) == ["cls"]


def test_every_domain_has_a_chart_with_the_runs_that_trained_on_it(runs: list[Path]) -> None:
    photo, art = domain_charts([read_run(path) for path in runs])
    assert (photo.title, art.title) == ("photo", "art")
    assert photo.drawing.stops[1].text == "step 20\nmessi: 80.0 %\nerm: 60.0 %"
    assert [line.look for line in art.drawing.lines] == [0]


def test_joined_records_stay_means_over_steps() -> None:
    few = [TrainRecord(step=step, terms={"cls": 1.0}) for step in range(MOST_POINTS)]
    assert thinned(few) == few
    # 250 records of 10 steps and a last one of 5, whose value counts half as much as the others'.
    many = [TrainRecord(step=10 * n, terms={"cls": float(n)} | ({"ssi": 5.0} if n > 1 else {})) for n in range(1, 251)]
    joined = thinned([*many, TrainRecord(step=2505, terms={"cls": 1000.0})])
    assert len(joined) == 84
    assert joined[0] == TrainRecord(step=30, terms={"cls": 2.0, "ssi": 5.0})
    assert joined[-1].step == 2505
    assert joined[-1].terms["cls"] == pytest.approx((10 * 250 + 5 * 1000) / 15)


def growing(folder: Path, *numbers: int, target: str = "sketch") -> list[Path]:
    samples = [
        Sample(algorithm="erm", seed=seed, sources=dict.fromkeys("abcdefgh"[:number], (0.5, 0.6, 0.5)),
               targets={target: 0.5 + 0.01 * number + 0.02 * seed})
        for number in numbers for seed in (0, 1)
    ]  # fmt: skip
    return [sample.write(folder / f"{target}{number}") for number, sample in enumerate(samples)]


def test_growth_is_the_mean_over_runs_with_so_many_sources(tmp_path: Path) -> None:
    chart = growth_chart([read_run(path) for path in growing(tmp_path, 2, 4, 8)])
    assert chart is not None
    assert chart.axis == "source domains"
    assert [stop.text for stop in chart.drawing.stops] == [
        "2 source domains\nerm: 53.0 % ± 1.4 (n = 2)",
        "4 source domains\nerm: 55.0 % ± 1.4 (n = 2)",
        "8 source domains\nerm: 59.0 % ± 1.4 (n = 2)",
    ]
    assert [point.x for point in chart.drawing.lines[0].points] == [25, 50, 100]
    assert len(chart.drawing.lines[0].band) == 6


def test_there_is_no_growth_without_different_numbers_or_with_different_targets(tmp_path: Path) -> None:
    same = growing(tmp_path, 2)
    assert growth_chart([read_run(path) for path in same]) is None
    other = growing(tmp_path, 4, target="cartoon")
    assert growth_chart([read_run(path) for path in [*same, *other]]) is None
