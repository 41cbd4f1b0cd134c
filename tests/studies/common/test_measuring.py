"""Measurements are stored in run folders: when they are read, repeated or missing."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from messi.core.errors import MessiError
from messi.experiments.specialisation import Specialisation
from messi.studies.common import measuring as module
from messi.studies.common.measuring import Measurement, measure, read_measured
from messi.studies.common.results import Results
from tests.studies.made_runs import made_results

RESULT = {"result": {"target": {"t": 0.5}}}
VALUES = torch.tensor([[0.1, torch.nan], [1 / 3, 1e-300]], dtype=torch.float64)


@dataclass(frozen=True)
class Numbers:
    """A measurement."""

    values: Tensor
    scalar: Tensor


class Model:
    """Counts how often it is measured."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, *_: object) -> Numbers:
        self.asked += 1
        return Numbers(VALUES, torch.tensor(float(self.asked)))


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def asking(model: Model, monkeypatch: pytest.MonkeyPatch) -> Measurement[Numbers]:
    monkeypatch.setattr(module, "reopen", lambda path, load_data: (SimpleNamespace(algorithm=path), None))  # noqa: ARG005
    return Measurement("numbers", "what it says", {"top": 3}, model.ask, Numbers)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Four finished runs with a model file each."""
    found = made_results(tmp_path, Specialisation(scale="small"), lambda _: RESULT)
    for outcome in found.outcomes:
        (outcome.path / "model.safetensors").touch()
    return found


def one_of(results: Results) -> Results:
    return Results(results.outcomes[:1])


def measured(results: Results, measurement: Measurement[Numbers]) -> dict[Path, Numbers]:
    return read_measured(measure(results, measurement), measurement)


def says(results: Results, measurement: Measurement[Numbers]) -> float:
    (numbers,) = measured(results, measurement).values()
    return float(numbers.scalar)


def test_it_is_measured_once(results: Results, model: Model, asking: Measurement[Numbers]) -> None:
    assert read_measured(results, asking) == {}, "reading loads no model"
    first = measure(results, asking)
    assert model.asked == 4
    for outcome in results.outcomes:
        (outcome.path / "model.safetensors").unlink()
    again = measure(results, asking)
    assert again.outcomes == first.outcomes == results.outcomes
    assert [float(one.scalar) for one in read_measured(results, asking).values()] == [1, 2, 3, 4]
    assert model.asked == 4


def test_every_digit_is_kept_and_nan_is_null(results: Results, asking: Measurement[Numbers]) -> None:
    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    for _ in ("measured", "read"):
        for numbers in measured(results, asking).values():
            torch.testing.assert_close(numbers.values, VALUES, rtol=0, atol=0, equal_nan=True)
            assert numbers.scalar.shape == ()
    text = (results.outcomes[0].path / "numbers.json").read_text()
    content = json.loads(text, parse_constant=refuse)
    assert content["settings"] == {"top": 3}
    assert content["found"]["values"] == [[0.1, None], [1 / 3, 1e-300]]


def test_other_settings_are_measured_again(results: Results, asking: Measurement[Numbers]) -> None:
    one, other = one_of(results), dataclasses.replace(asking, settings={"top": 4})
    assert [says(one, asking), says(one, other), says(one, other)] == [1, 2, 2]


@pytest.mark.parametrize("text", ["", "{", "[]", "\xe9"])
def test_a_damaged_file_is_made_again(text: str, results: Results, asking: Measurement[Numbers]) -> None:
    one = one_of(results)
    assert says(one, asking) == 1
    (one.outcomes[0].path / "numbers.json").write_bytes(text.encode("latin-1"))
    assert [says(one, asking), says(one, asking)] == [2, 2]


def test_a_missing_model_is_a_reason(results: Results, asking: Measurement[Numbers]) -> None:
    gone, *others = results.outcomes
    (gone.path / "model.safetensors").unlink()
    found = measure(results, asking)
    assert list(read_measured(found, asking)) == [outcome.path for outcome in others]
    lacking, whole = found.state(**gone.labels), found.state(**others[0].labels)
    assert (lacking.state, whole.state, whole.reason) == ("incomplete", "done", "")
    sentence = f"model.safetensors is missing in {gone.path.name}, so what it says cannot be measured"
    assert lacking.reason.startswith(sentence)


def test_missing_data_is_a_reason(
    results: Results, asking: Measurement[Numbers], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MessiError("There is no folder pacs.")

    monkeypatch.setattr(module, "reopen", refuse)
    found = measure(results, asking)
    assert not read_measured(found, asking)
    assert (found.state().state, found.state().reason) == ("incomplete", "There is no folder pacs.")


def test_a_run_that_failed_keeps_its_own_reason(tmp_path: Path, asking: Measurement[Numbers]) -> None:
    def made(labels: Any) -> Any:
        return "Out of memory." if labels["method"] == "MESSI" else RESULT

    found = measure(made_results(tmp_path, Specialisation(scale="small"), made), asking)
    assert (found.state().state, found.state().reason) == ("failed", "Out of memory.")
    assert found.state(method="MESSI w/o L_div").reason.startswith("model.safetensors is missing")
