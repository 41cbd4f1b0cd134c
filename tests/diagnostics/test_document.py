"""The document contains what the measures return for the same examples, and omits what a method does not have."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.core.batch import Batch, LossTerms, Prediction
from messi.core.rundir import RunDir
from messi.data.sealed_data import SealedData
from messi.data.splits import Split
from messi.diagnostics import recording
from messi.diagnostics.document import diagnose
from messi.diagnostics.to_json import cells, plain
from messi.engine.config import RunConfig
from messi.engine.run import run

from .helpers import CLASSES, PER_DOMAIN, examples, loader_of, make

ACCURACY = {"source_val": {"photo": 0.9, "sketch": 0.61234}, "target": {"paint": 0.7}}
WITH_EXPERTS = {"routing", "slots", "similarity"}
FOR_ALL = {"router", "domains", "classes", "experts", "role", "examples", "calibration", "accuracy", "pictures"}
OF_FEATURES = {"discrepancy", "probe", "embedding", "embedding_domains"}


@pytest.fixture(scope="module")
def of_messi() -> dict[str, Any]:
    document = diagnose(make("messi"), loader_of(examples()), ACCURACY)
    again: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    assert again == document, "plain JSON"
    return document


def test_the_document_names_the_model_and_the_examples(of_messi: dict[str, Any]) -> None:
    assert of_messi.keys() == FOR_ALL | OF_FEATURES | WITH_EXPERTS
    assert of_messi["router"] == "head"
    assert of_messi["domains"] == ["photo", "sketch"]
    assert of_messi["classes"] == list(CLASSES)
    assert (of_messi["experts"], of_messi["role"], of_messi["examples"]) == (6, "source_val", 2 * PER_DOMAIN)
    assert of_messi["embedding_domains"] == ["photo", "sketch", "paint"]


def test_routing_and_slots_are_those_of_the_examples(of_messi: dict[str, Any]) -> None:
    data, loader = examples(), loader_of(examples())
    with torch.no_grad():
        routing = make("messi").predict(next(loader.inputs([torch.arange(2 * PER_DOMAIN)]))).routing
    assert routing is not None
    tables = of_messi["routing"]
    assert tables["load"] == pytest.approx(routing.mean(0).tolist(), rel=1e-3)
    assert tables["dead_threshold"] == 0.01
    emus = routing[(data.domains[: 2 * PER_DOMAIN] == 1) & (data.labels[: 2 * PER_DOMAIN] == 2)]
    assert tables["by_class"][2] == pytest.approx(emus.mean(0).tolist(), rel=1e-3), "photo has no emu"
    assert "by_domain_and_class" not in tables, "the records contain it"
    assert [len(tables[name]) for name in ("by_domain", "by_class")] == [2, 3]
    slots = of_messi["slots"]
    assert (slots["pairs"], slots["sharpness"]) == ([[0, 1]], 4.0)
    assert slots["responsibilities"][0][2] is None
    assert len(slots["responsibilities"][0][0]) == 6
    cat, dog, emu = of_messi["discrepancy"]["pairs"][0]
    assert emu is None
    assert of_messi["discrepancy"]["energy"] == pytest.approx((cat + dog) / 2, rel=1e-3)
    assert of_messi["probe"]["chance"] == 0.5
    assert of_messi["discrepancy"]["examples"] == of_messi["probe"]["examples"] == 2 * PER_DOMAIN
    assert len(of_messi["similarity"]["cosine"]) == 6


def test_calibration_accuracy_and_the_worst_domain(of_messi: dict[str, Any]) -> None:
    assert of_messi["accuracy"] == {
        "source_val": {"photo": 0.9, "sketch": 0.6123},
        "target": {"paint": 0.7},
        "worst": {"domain": "sketch", "accuracy": 0.6123},
    }
    for role, number in (("source_val", 2 * PER_DOMAIN), ("target", PER_DOMAIN)):
        assert sum(one["count"] for one in of_messi["calibration"][role]["bins"]) == number


def test_the_embedding_has_a_row_for_each_example_of_every_kind(of_messi: dict[str, Any]) -> None:
    embedding, data = of_messi["embedding"], examples()
    assert embedding["domain"] == data.domains.tolist()
    assert embedding["class"] == data.labels.tolist()
    assert embedding["roles"] == ["source_val"] * 2 * PER_DOMAIN + ["target"] * PER_DOMAIN
    for name in ("before", "after"):
        points = torch.tensor(embedding[name])
        assert points.shape == (3 * PER_DOMAIN, 2)
        assert points[:, 0].var() >= points[:, 1].var()
    assert set(embedding["expert"]) <= set(range(6))


def test_pictures_show_the_examples_of_every_expert_and_mistakes_in_every_domain(of_messi: dict[str, Any]) -> None:
    pictures = of_messi["pictures"]
    assert [len(shown) for shown in pictures["experts"]] == [8] * 6
    for shown in pictures["experts"]:
        weights = [one["weight"] for one in shown]
        assert weights == sorted(weights, reverse=True)
        assert all(one.keys() == {"src", "class", "domain", "weight"} for one in shown)
    assert pictures["mistakes"].keys() == {"paint"}
    assert pictures["source_mistakes"].keys() == {"photo", "sketch"}
    assert [len(shown) for shown in pictures["source_mistakes"].values()] == [3, 3], "of a larger number"
    for one in [*pictures["mistakes"]["paint"], *pictures["source_mistakes"]["sketch"]]:
        assert one.keys() == {"src", "class", "predicted", "confidence"}
        assert one["class"] != one["predicted"]


def test_a_method_without_a_router_has_no_such_parts() -> None:
    document = diagnose(make("erm"), loader_of(examples()), ACCURACY)
    assert document.keys() == FOR_ALL | OF_FEATURES
    assert (document["router"], document["experts"]) == ("none", 0)
    assert document["embedding"].keys() == {"before", "after", "domain", "class", "roles"}
    assert document["pictures"].keys() == {"mistakes", "source_mistakes"}


def test_experts_in_blocks_are_included() -> None:
    document = diagnose(make("gmoe"), loader_of(examples()), ACCURACY)
    assert document["router"] == "blocks"
    assert document["routing"]["entropy"] == 0, "one expert for each"
    assert 0 < document["similarity"]["mean_off_diagonal"] < 1, "copies that have diverged slightly"


class Guess(Algorithm):
    """Implements only what is required."""

    def update(self, batch: Batch, stepper: Any) -> LossTerms:
        raise NotImplementedError

    def predict(self, inputs: Tensor) -> Prediction:
        return Prediction(logits=inputs.mean((2, 3)))


def test_a_method_that_only_predicts_has_a_document() -> None:
    assert diagnose(Guess(), loader_of(examples()), ACCURACY).keys() == FOR_ALL


def test_a_run_may_have_no_validation_data_of_its_sources_and_no_target() -> None:
    document = diagnose(make("messi"), loader_of(examples(), sources=()), {"source_val": {}, "target": {"paint": 0.5}})
    assert document.keys() == FOR_ALL | {"embedding", "embedding_domains"}
    assert (document["router"], document["examples"], document["domains"]) == ("head", 0, [])
    loader = loader_of(examples())
    loader.data = SealedData(examples(), Split(train={}, source_val={}, target={}))
    nothing: dict[str, dict[str, float]] = {"source_val": {}, "target": {}}
    assert diagnose(make("messi"), loader, nothing)["accuracy"] == nothing


def test_measures_of_two_domains_are_left_out_if_there_is_one() -> None:
    accuracy = {"source_val": {"sketch": 0.5}, "target": {"paint": 0.5}}
    document = diagnose(make("messi"), loader_of(examples(), sources=(1,)), accuracy)
    assert not {"discrepancy", "probe"} & document.keys()
    assert document["slots"] == {"pairs": [], "slot_weight": "sigmoid", "sharpness": 4.0, "responsibilities": []}
    assert document["routing"]["template_divergence"] is None


def test_the_number_of_examples_can_be_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "PER_DOMAIN", 7)
    assert diagnose(make("erm"), loader_of(examples()), ACCURACY)["examples"] == 14
    monkeypatch.setattr(recording, "IN_ALL", 8)
    assert diagnose(make("erm"), loader_of(examples()), ACCURACY)["examples"] == 8


def test_a_run_leaves_its_document_with_the_accuracy_of_its_result(tmp_path: Path, quick_config: RunConfig) -> None:
    folders = [RunDir(run(quick_config, out=tmp_path / name, device="cpu").path) for name in ("a", "b")]
    document, result = json.loads(folders[0].diagnostics.read_text()), folders[0].read_result()
    assert document["accuracy"]["target"] == plain(result.target)
    assert document["accuracy"]["source_val"] == plain(result.source_val)
    assert document["domains"] == ["a1", "a2", "b1"]
    assert "pictures" not in document, "features have no pictures"
    assert folders[0].diagnostics.read_bytes() == folders[1].diagnostics.read_bytes()


def test_numbers_are_rounded_and_nan_is_null() -> None:
    assert plain({"a": 1 / 3, "b": [math.nan, 12345.6, 7], "c": torch.tensor([1.0, math.inf])}) == {
        "a": 0.3333,
        "b": [None, 12350.0, 7],
        "c": [1.0, None],
    }
    assert cells(torch.tensor([[0.5, 0.5], [math.nan, math.nan]])) == [[0.5, 0.5], None]
