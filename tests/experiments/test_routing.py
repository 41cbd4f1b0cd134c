"""The plan of the routing pictures, and what they show."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from made_runs import made_results

from messi.experiments._base import Figure
from messi.experiments.routing import Routing, lines_of
from messi.sweeps.plan import Label

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
DOCUMENT: dict[str, Any] = {
    "domains": ["photo", "sketch"],
    "classes": ["cat", "dog"],
    "routing": {
        "load": [0.5, 0.5],
        "by_domain": [[0.2, 0.8], [0.3, 0.7]],
        "by_domain_and_class": [[[0.1, 0.9], None], [[0.3, 0.7], [0.4, 0.6]]],
    },
}


def made(labels: Mapping[str, Label]) -> dict[str, Any]:
    """Every value tells the target, the domain and the method."""
    sources = [domain for domain in DOMAINS if domain != labels["target"]]
    base = 0.5 if labels["method"] == "MESSI" else 0.0
    values = [base + (0.25 if labels["target"] == "sketch" else 0.0) + 0.01 * DOMAINS.index(d) for d in sources]
    routing = {"load": [1.0], "by_domain": [[v] for v in values], "by_domain_and_class": [[[v + 0.1]] for v in values]}
    return {"result": {}, "diagnostics": {"domains": sources, "classes": ["dog"], "routing": routing}}


def test_every_domain_is_a_source_of_a_run_of_both_methods() -> None:
    labels = [(run.labels["method"], run.labels["target"], run.labels["seed"]) for run in Routing().runs()]
    assert labels == [(method, t, 0) for t in ("art_painting", "sketch") for method in ("GMoE", "MESSI")]
    assert len(Routing(seeds=2).runs()) == 8
    assert [run.labels["method"] for run in Routing(scale="small").runs()] == ["MESSI"] * 2


def test_a_picture_shows_its_domain_first_as_a_whole_and_then_by_class(tmp_path: Path) -> None:
    experiment = Routing()
    figures = experiment.sections(made_results(tmp_path, experiment, made))
    assert [figure.name for figure in figures] == [f"routing_{domain}_seed0" for domain in DOMAINS]
    shown = {"art_painting": 0.25, "cartoon": 0.26, "photo": 0.27, "sketch": 0.03}  # Sketch: the run that holds out Art
    for domain, figure in zip(DOMAINS, figures, strict=True):
        assert isinstance(figure, Figure)
        for method, base in (("G1", 0.0), ("M1", 0.5)):
            value = shown[domain] + base
            assert f"all classes, {method}: {value:.4g}</title>" in figure.svg
            assert f"dog, {method}: {value + 0.1:.4g}</title>" in figure.svg
    last = figures[-1]
    assert isinstance(last, Figure)
    assert "Data: PACS, held out: art_painting; backbone DeiT-S/16. Protocol: messi, 5000 steps." in last.caption


def test_a_class_that_a_domain_lacks_stays_blank() -> None:
    assert lines_of(DOCUMENT, "photo") == [[0.2, 0.8], [0.1, 0.9], [None, None]]
    assert lines_of(DOCUMENT, "sketch") == [[0.3, 0.7], [0.3, 0.7], [0.4, 0.6]]


def test_without_all_methods_there_is_no_picture(tmp_path: Path) -> None:
    experiment = Routing()

    def some(labels: Mapping[str, Label]) -> dict[str, Any] | None:
        return None if (labels["method"], labels["target"]) == ("GMoE", "sketch") else made(labels)

    figures = experiment.sections(made_results(tmp_path, experiment, some))
    assert [figure.name for figure in figures] == ["routing_sketch_seed0"]
