"""The plan of the routing figures, and their content."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from messi.core.documents import write_document
from messi.core.records import Record, RecordWriter, Role, RoutingRecord
from messi.core.rundir import RunDir
from messi.experiments.routing import Routing, lines_of
from messi.reports.plan_page import Figure, Text
from messi.studies.common.results import Results
from messi.sweeps.plan import Label
from tests.studies.made_runs import made_results

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


def cell(domain: str, label: str, count: int, *experts: float, role: Role = "source_val") -> RoutingRecord:
    return RoutingRecord(role=role, domain=domain, label=label, count=count, experts=experts)


def made(labels: Mapping[str, Label]) -> dict[str, Any]:
    return {"result": {}}


def with_records(results: Results) -> Results:
    """Write routing records in which every value encodes the target, the domain and the method."""
    for outcome in results.outcomes:
        if outcome.state == "done":
            folder, labels = RunDir(outcome.path), outcome.labels
            write_document(folder.description, replace(folder.read_description(), classes=("cat", "dog")))
            base = (0.5 if labels["method"] == "MESSI" else 0.0) + (0.25 if labels["target"] == "sketch" else 0.0)
            writer = RecordWriter(folder.records, size=0)
            for place, domain in enumerate(DOMAINS):
                role: Role = "target" if domain == labels["target"] else "source_val"
                value = base + 0.01 * place
                writer.write(cell(domain, "cat", 1, value + 0.2, role=role))
                writer.write(cell(domain, "dog", 3, value, role=role))
            writer.close()
    return results


def test_every_domain_is_a_source_of_a_run_of_both_methods() -> None:
    labels = [(run.labels["method"], run.labels["target"], run.labels["seed"]) for run in Routing().runs()]
    assert labels == [(method, t, 0) for t in ("art_painting", "sketch") for method in ("GMoE", "MESSI")]
    assert len(Routing(seeds=2).runs()) == 8
    assert [run.labels["method"] for run in Routing(scale="small").runs()] == ["MESSI"] * 2


def test_a_picture_shows_its_domain_first_as_a_whole_and_then_by_class(tmp_path: Path) -> None:
    experiment = Routing()
    figures = experiment.report(with_records(made_results(tmp_path, experiment, made)))
    assert [figure.name for figure in figures] == [f"routing_{domain}_seed0" for domain in DOMAINS]
    shown = {"art_painting": 0.25, "cartoon": 0.26, "photo": 0.27, "sketch": 0.03}  # Sketch: the run that holds out Art
    for domain, figure in zip(DOMAINS, figures, strict=True):
        assert isinstance(figure, Figure)
        for method, base in (("G1", 0.0), ("M1", 0.5)):
            value = shown[domain] + base
            assert f"all classes, {method}: {value + 0.05:.4g}</title>" in figure.svg, "dogs are three in four"
            assert f"cat, {method}: {value + 0.2:.4g}</title>" in figure.svg
            assert f"dog, {method}: {value:.4g}</title>" in figure.svg
    last = figures[-1]
    assert isinstance(last, Figure)
    assert "Data: PACS, held out: art_painting; backbone DeiT-S/16. Protocol: messi, 5000 steps." in last.caption


def test_a_class_that_a_domain_lacks_stays_blank_and_the_whole_is_weighted_by_the_examples() -> None:
    records: list[Record] = [
        cell("sketch", "cat", 1, 0.25, 0.75),
        cell("photo", "cat", 2, 0.125, 0.875),
        cell("sketch", "dog", 3, 0.5, 0.5),
        cell("sketch", "emu", 9, 1.0, 0.0, role="target"),
    ]
    whole, cat, dog, emu = lines_of(records, "sketch", ("cat", "dog", "emu"))
    assert whole == pytest.approx([(0.25 + 3 * 0.5) / 4, (0.75 + 3 * 0.5) / 4])
    assert (list(cat), list(dog), list(emu)) == ([0.25, 0.75], [0.5, 0.5], [None, None])
    assert [list(line) for line in lines_of(records, "photo", ("cat", "dog"))] == [
        [0.125, 0.875], [0.125, 0.875], [None, None],
    ]  # fmt: skip


def test_without_all_methods_there_is_no_picture(tmp_path: Path) -> None:
    experiment = Routing()

    def some(labels: Mapping[str, Label]) -> dict[str, Any] | None:
        return None if (labels["method"], labels["target"]) == ("GMoE", "sketch") else made(labels)

    figures = experiment.report(with_records(made_results(tmp_path, experiment, some)))
    assert [figure.name for figure in figures] == ["routing_sketch_seed0"]


@pytest.mark.parametrize(
    ("content", "reason"), [("{\n", "line 1, is not a record"), ("", "contains no routing of cartoon")]
)
def test_damaged_records_give_a_text_instead_of_a_figure(tmp_path: Path, content: str, reason: str) -> None:
    experiment = Routing()
    results = with_records(made_results(tmp_path, experiment, made))
    (run,) = results.where(method="GMoE", target="sketch")
    (run.path / "records.jsonl").write_text(content)
    parts = experiment.report(results)
    assert [type(part) for part in parts] == [Text, Text, Text, Figure]
    assert isinstance(parts[1], Text)
    assert "Cartoon, seed 0: no figure" in parts[1].markdown
    assert reason in parts[1].markdown
