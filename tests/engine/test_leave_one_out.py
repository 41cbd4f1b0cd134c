"""Which domains are held out: in turn, by official splits, and for data of unusual shapes."""

import dataclasses
import unicodedata
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from messi.algorithms.messi import MESSI
from messi.core.batch import Batch, LossTerms
from messi.core.config import OPEN
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, Role, RoleRecord
from messi.core.rundir import RunDir
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.iwildcam import IWildCam
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.examples import Examples
from messi.data.sealed_data import SealedData, TargetSealedError
from messi.data.splits import SplitConfig, SplitKind, make_split, official_split
from messi.engine.build import build_run
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import reopen
from messi.engine.leave_one_out import runs_of
from messi.engine.loop import measure, train
from messi.engine.observers import Stopwatch
from messi.engine.run import run
from messi.reports.curves import validation_charts
from messi.reports.result_tables import result_rows
from messi.reports.runs import read_run

NAMES = ("a1", "a2", "b1", "b2")
ROLES: tuple[Role, ...] = ("train", "source_val", "unseen_val", "source_test", "target")


def config_of(target: tuple[str, ...] = (), sources: tuple[str, ...] = (), split: SplitKind = OPEN) -> RunConfig:
    return RunConfig(data=TwoSubsets(), target=target, sources=sources, training=TrainingConfig(split=split))


def targets(config: RunConfig, domains: tuple[str, ...] = NAMES) -> list[tuple[str, ...]]:
    return [one.target for one in runs_of(config, domains)]


def test_without_a_target_each_domain_is_held_out_in_turn_in_the_order_of_the_data() -> None:
    runs = runs_of(config_of(), NAMES)
    assert [one.target for one in runs] == [("a1",), ("a2",), ("b1",), ("b2",)]
    assert len({one.folder_name() for one in runs}) == 4


def test_named_targets_and_no_target_are_one_run_each() -> None:
    assert targets(config_of(("b1", "a2"))) == [("b1", "a2")]
    assert targets(config_of(("none",))) == [()]
    assert targets(config_of(("none",)), ("none", "other")) == [("none",)], "a domain may have that name"


def test_names_are_found_in_composed_and_decomposed_characters() -> None:
    stored, typed = (unicodedata.normalize(form, "Köln") for form in ("NFD", "NFC"))
    (one,) = runs_of(config_of((typed,)), (stored, "b"))
    assert one.target == (stored,), "as in the data"
    (one,) = runs_of(config_of(sources=("b",)), (stored, "b"))
    assert one.target == (stored,)
    assert targets(config_of((typed,)), (stored, typed, "b")) == [(typed,)], "unless both exist"


def test_if_only_sources_are_named_all_other_domains_are_the_target() -> None:
    (one,) = runs_of(config_of(sources=("b1", "a1")), NAMES)
    assert (one.sources, one.target) == (("b1", "a1"), ("a2", "b2"))
    (one,) = runs_of(config_of(sources=NAMES), NAMES)
    assert one.target == ()
    (one,) = runs_of(config_of(("none",), sources=("a1",)), NAMES)
    assert (one.sources, one.target) == (("a1",), ())
    (one,) = runs_of(config_of(("b2",), sources=("a1",)), NAMES)
    assert (one.sources, one.target) == (("a1",), ("b2",))


def test_rotated_colored_mnist_holds_out_only_its_test_environment() -> None:
    config = RunConfig(data=RotatedColoredMNIST(num_sources=3))
    assert targets(config, ("rot0-p0", "rot0-p0.1", "rot0-p0.2", "rot0-p0.5")) == [("rot0-p0.5",)]


@pytest.mark.parametrize(
    ("config", "domains", "sentence"),
    [
        (config_of(("b11",)), NAMES, r"no domain named 'b11'; available: a1, a2, b1, b2. Did you mean 'b1'\?"),
        (config_of(sources=("c",)), NAMES, "no domain named 'c'"),
        (config_of(("none", "a1")), NAMES, "no domain named 'none'"),
        (config_of(NAMES), NAMES, "Every domain is held out as a target; leave at least one to train on"),
        (config_of(), ("only",), "one domain, 'only', so none can be held out; train on it with --target none"),
        (config_of(), tuple("abcdefghijklmnopqrstu"), "has 21 domains, .* with --target, or train on all with --tar"),
    ],
)
def test_a_target_that_cannot_be_held_out_gives_one_sentence(
    config: RunConfig, domains: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(MessiError, match=sentence) as raised:
        runs_of(config, domains)
    assert "\n" not in str(raised.value)


def test_twenty_domains_are_twenty_runs_and_a_single_domain_can_be_trained_on() -> None:
    assert len(runs_of(config_of(), tuple("abcdefghijklmnopqrst"))) == 20
    assert targets(config_of(("none",)), ("only",)) == [()]


def test_an_official_split_is_one_run_however_many_domains_there_are() -> None:
    many = tuple(str(number) for number in range(323))
    assert targets(config_of(split="official"), many) == [()]
    assert runs_of(RunConfig(data=IWildCam()), many) == [RunConfig(data=IWildCam())]


def examples_with(rows: list[tuple[str, str]]) -> Examples:
    """Return one example of alternating classes for every (domain, part)."""
    names = tuple(dict.fromkeys(domain for domain, _ in rows))
    return Examples(
        inputs=torch.arange(len(rows) * 2.0).view(-1, 2),
        labels=torch.arange(len(rows)) % 2,
        domains=torch.tensor([names.index(domain) for domain, _ in rows]),
        classes=("c", "d"),
        domain_names=names,
        fingerprint="",
        parts=tuple(part for _, part in rows),
    )


# Two cameras are trained on; WILDS calls parts of theirs id_val and id_test.
WILDS = [
    (domain, part)
    for domain, part in (
        ("1", "train"), ("1", "id_val"), ("1", "id_test"), ("2", "train"), ("2", "id_val"), ("3", "val"), ("4", "test"),
    )
    for _ in range(2)
]  # fmt: skip


def roles_of(examples: Examples) -> dict[str, dict[str, list[int]]]:
    split = official_split(examples)
    return {
        role: {examples.domain_names[domain]: indices.tolist() for domain, indices in split.of(role).items()}
        for role in ROLES
    }


def test_the_roles_of_the_five_parts_of_wilds_depend_on_whether_their_domain_is_trained_on() -> None:
    assert roles_of(examples_with(WILDS)) == {
        "train": {"1": [0, 1], "2": [6, 7]},
        "source_val": {"1": [2, 3], "2": [8, 9]},
        "unseen_val": {"3": [10, 11]},
        "source_test": {"1": [4, 5]},
        "target": {"4": [12, 13]},
    }


def test_part_names_without_a_prefix_are_split_alike_in_any_case() -> None:
    plain = [(domain, part.removeprefix("id_").upper()) for domain, part in WILDS]
    assert roles_of(examples_with(plain)) == roles_of(examples_with(WILDS))
    words = {"train": "Training", "val": "validation", "test": "Testing", "id_val": "dev-val", "id_test": "test_A"}
    worded = [(domain, words[part]) for domain, part in WILDS]
    assert roles_of(examples_with(worded)) == roles_of(examples_with(WILDS))


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (["train", "holdout"], "official part 'holdout' contains none of train, val and test; rename it"),
        (["train", ""], "official part '' contains none of train, val and test"),
        (["val", "id_test"], "No official part is called train; available: id_test, val"),
        ([], "split 'official' requires data with official parts; choose --split stratified or domainbed"),
    ],
)
def test_unusable_parts_give_one_sentence(parts: list[str], sentence: str) -> None:
    examples = examples_with([("x", part) for part in parts] or [("x", "train")])
    if not parts:
        examples = Examples(examples.inputs, examples.labels, examples.domains, ("c",), ("x",), "")
    with pytest.raises(MessiError, match=sentence):
        official_split(examples)


def test_both_kinds_of_test_data_are_sealed_and_no_other_data() -> None:
    examples = examples_with(WILDS)
    data = SealedData(examples, official_split(examples))
    sealed = {4, 5, 12, 13}
    for index in range(len(examples)):
        chosen = torch.tensor([index])
        for read in (data.features, data.labels):
            if index in sealed:
                with pytest.raises(TargetSealedError):
                    read(chosen)
            else:
                assert len(read(chosen)) == 1
    tests: tuple[tuple[Role, int], ...] = (("source_test", 0), ("target", 3))
    for role, domain in tests:
        with pytest.raises(TargetSealedError):
            data.indices(role, domain)
    data.open_target()
    assert [len(data.indices(role, domain)) for role, domain in tests] == [2, 2]


def test_validation_data_of_an_unseen_domain_is_open_while_its_test_data_is_sealed() -> None:
    rows = [("1", "train"), ("1", "train"), ("9", "val"), ("9", "test"), ("9", "val"), ("9", "test")]
    examples = examples_with(rows)
    sealed = SealedData(examples, official_split(examples))
    assert sealed.indices("unseen_val", 1).tolist() == [2, 4]
    assert sealed.labels(torch.tensor([2, 4])).tolist() == [0, 0]
    for index in (3, 5):
        with pytest.raises(TargetSealedError):
            sealed.labels(torch.tensor([2, index]))


def test_the_unreported_part_of_the_target_stays_sealed() -> None:
    examples = TwoSubsets(per_domain=50).load()
    split = make_split(examples, [3], SplitConfig(split="domainbed", validation_fraction=0.2, target_part="in"), seed=0)
    sealed = SealedData(examples, split)
    assert len(split.target[3]) == 40
    for index in range(150, 200):
        with pytest.raises(TargetSealedError):
            sealed.labels(torch.tensor([index]))


def save(path: Path, domains: list[str], labels: list[int], parts: list[str] | None = None) -> Arrays:
    """Save features that encode their class, so that there is something to learn."""
    inputs = np.random.default_rng(0).normal(size=(len(domains), 3))
    inputs[:, 0] += np.array(labels)
    extra = {} if parts is None else {"split": np.array(parts)}
    np.savez(path, inputs=inputs, labels=np.array(labels), domains=np.array(domains), **extra)  # type: ignore[arg-type]
    return Arrays(path=str(path))


@pytest.fixture
def wilds(tmp_path: Path) -> Arrays:
    rows = [row for row in WILDS for _ in range(4)]
    labels = [number % 2 for number in range(len(rows))]
    return save(tmp_path / "wilds.npz", [domain for domain, _ in rows], labels, [part for _, part in rows])


OFFICIAL = TrainingConfig(
    split="official", selection="unseen_val", steps=4, evaluate_every=2, batch_per_domain=4, sampling="epochs"
)


def test_an_official_run_selects_by_unseen_domains_and_reports_on_both_kinds_of_tests(
    wilds: Arrays, tmp_path: Path
) -> None:
    config = RunConfig(data=wilds, training=OFFICIAL)
    folder = RunDir(run(config, out=tmp_path / "run", device="cpu").path)
    result = folder.read_result()
    evaluated = [record for record in folder.read_records() if isinstance(record, EvaluationRecord)]
    seen = [(record.step, record.role, record.domain, record.count) for record in evaluated]
    step = result.selected_step
    assert seen == [
        (2, "source_val", "1", 8), (2, "source_val", "2", 8), (2, "unseen_val", "3", 8),
        (4, "source_val", "1", 8), (4, "source_val", "2", 8), (4, "unseen_val", "3", 8),
        (step, "source_test", "1", 8), (step, "target", "4", 8),
    ]  # fmt: skip
    scores = {record.step: record.accuracy for record in evaluated if record.role == "unseen_val"}
    assert step == max(scores, key=lambda number: (scores[number], -number))
    assert (result.selection, list(result.target)) == ("unseen_val", ["4"])
    assert folder.read_description().sources == ("1", "2")
    events = EventAccumulator(str(folder.path / "tensorboard")).Reload()
    assert {tag for tag in events.Tags()["scalars"] if not tag.startswith("loss/")} == {"accuracy/unseen_val"}
    shown = {event.step: event.value for event in events.Scalars("accuracy/unseen_val")}
    assert shown == {step: pytest.approx(accuracy) for step, accuracy in scores.items()}


class BreaksOff(Stopwatch):
    """Stops a run after its third step."""

    def stepped(self, step: int) -> None:
        if step == 3:
            raise ConnectionAbortedError


def unseen_macro_f1(path: Path) -> float:
    """Return the macro F1 of the model in a run folder, computed by its definition."""
    model, loader = reopen(path, device="cpu")
    indices = torch.cat([loader.data.indices("unseen_val", d) for d in loader.data.domains("unseen_val")])
    labels = loader.data.labels(indices)
    said = model.algorithm.predict(loader.data.features(indices)).logits.argmax(-1)
    scores = []
    for label in labels.unique():
        right = int(((said == label) & (labels == label)).sum())
        scores.append(2 * right / int((said == label).sum() + (labels == label).sum()))
    return sum(scores) / len(scores)


def test_macro_f1_selects_the_best_step_on_all_unseen_examples_also_in_a_resumed_run(
    wilds: Arrays, tmp_path: Path
) -> None:
    training = dataclasses.replace(OFFICIAL, selection="unseen_val_macro_f1", steps=6, evaluate_every=1)
    config = RunConfig(data=wilds, training=dataclasses.replace(training, learning_rate=0.05))
    folder = RunDir(run(config, out=tmp_path / "whole", device="cpu").path)
    whole = [record for record in folder.read_records() if isinstance(record, RoleRecord)]
    scores = {record.step: record.macro_f1 for record in whole if record.role == "unseen_val"}
    result = folder.read_result()
    step = result.selected_step
    assert list(scores) == [1, 2, 3, 4, 5, 6]
    assert len(set(scores.values())) > 2, "there is something to select"
    assert step == max(scores, key=lambda number: (scores[number], -number))
    assert result.roles["unseen_val"].macro_f1 == scores[step] == pytest.approx(unseen_macro_f1(folder.path))
    assert set(result.roles) == {"source_val", "unseen_val", "source_test", "target"}
    assert (result.selection, result.validation) == ("unseen_val_macro_f1", "unseen_val")
    with pytest.raises(ConnectionAbortedError):
        run(config, out=tmp_path / "broken", device="cpu", observers=[BreaksOff(torch.device("cpu"))])
    again = RunDir(run(config, out=tmp_path / "broken", device="cpu").path)
    for name in ("records", "model", "result"):
        assert getattr(again, name).read_bytes() == getattr(folder, name).read_bytes()
    finished = [read_run(folder.path)]
    (curve,) = validation_charts(finished, result_rows(finished))
    texts = [stop.text.rpartition(": ")[2] for stop in curve.chart.drawing.stops]
    assert texts == [f"{100 * score:.1f} %" for score in scores.values()], "the curve is what the rule reads"
    assert curve.selected == {0: 100 * scores[step]}


def test_test_data_of_a_source_domain_cannot_be_read_during_training(
    wilds: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig(data=wilds, training=OFFICIAL).resolved()
    folder = RunDir(tmp_path / "run")
    parts = build_run(config, config.data.load(), folder, torch.device("cpu"))
    tests: tuple[Role, ...] = ("source_test", "target")
    for role in tests:
        with pytest.raises(TargetSealedError):
            measure(parts, role, 1)
    honest = MESSI.loss

    def peek(self: MESSI, batch: Batch) -> LossTerms:
        parts.loader.data.labels(torch.tensor([16]))
        return honest(self, batch)

    monkeypatch.setattr(MESSI, "loss", peek)
    with folder.locked(), closing(parts.metrics):
        folder.begin(parts.description)
        with pytest.raises(TargetSealedError):
            train(parts)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (RunConfig(data=TwoSubsets(per_domain=20), training=OFFICIAL), "requires data with official parts"),
        (RunConfig(data=TwoSubsets(per_domain=20), target=("a1", "a1")), "named twice"),
        (RunConfig(data=TwoSubsets(per_domain=20), target=("a1",), sources=("a1",)), "source and target: a1"),
    ],
)
def test_a_run_that_contradicts_its_data_or_itself_gives_one_sentence(
    config: RunConfig, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(MessiError, match=sentence):
        run(config, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_an_official_split_allows_no_target_and_no_sources(wilds: Arrays, tmp_path: Path) -> None:
    for config in (
        RunConfig(data=wilds, training=OFFICIAL, target=("1",)),
        RunConfig(data=wilds, training=OFFICIAL, sources=("1",)),
    ):
        with pytest.raises(MessiError, match="split 'official' defines the source domains itself"):
            run(config, out=tmp_path / "run", device="cpu")


def test_selection_by_missing_domains_gives_one_sentence(tmp_path: Path) -> None:
    training = TrainingConfig(selection="unseen_val", steps=1, batch_per_domain=2)
    config = RunConfig(data=TwoSubsets(per_domain=20), target=("a1",), training=training)
    with pytest.raises(MessiError, match=r"^selection 'unseen_val' requires .* choose another rule with .*\.$"):
        run(config, out=tmp_path / "run", device="cpu")


def numbered(domains: int, each: int) -> list[str]:
    return [f"d{number // each:03}" for number in range(domains * each)]


ODD: dict[str, tuple[list[str], list[int], tuple[str, ...]]] = {
    "a class is missing in some domains": (numbered(3, 8), [0, 1] * 4 + [0, 2] * 4 + [1, 2] * 4, ("d002",)),
    "no two domains share a class": (numbered(3, 8), [0, 1] * 4 + [2, 3] * 4 + [4, 5] * 4, ("d002",)),
    "a single source domain": (numbered(2, 8), [0, 1] * 8, ("d001",)),
    "a single domain and no target": (numbered(1, 8), [0, 1] * 4, ()),
    "two domains and no target": (numbered(2, 8), [0, 1] * 8, ()),
    "one class alone": (numbered(3, 8), [0] * 24, ("d002",)),
    "243 domains": (numbered(243, 3), [0, 1, 1] * 243, ("d242",)),
    "345 classes": (numbered(3, 345), list(range(345)) * 3, ("d002",)),
    "domains of two examples, far fewer than a batch has": (numbered(3, 2), [0, 1] * 3, ("d000",)),
}


@pytest.mark.parametrize("case", ODD)
def test_messi_runs_on_data_of_unusual_shapes(case: str, tmp_path: Path) -> None:
    domains, labels, target = ODD[case]
    config = RunConfig(
        data=save(tmp_path / "odd.npz", domains, labels),
        target=target,
        training=TrainingConfig(steps=2, batch_per_domain=2 if case.startswith("243") else 16),
    )
    result = run(config, out=tmp_path / "run", device="cpu")
    assert set(result.source_val) == set(domains) - set(target)
    assert tuple(result.target) == target
    assert all(0 <= accuracy <= 1 for accuracy in (*result.source_val.values(), *result.target.values()))
    description = RunDir(result.path).read_description()
    assert description.classes == tuple(str(label) for label in sorted(set(labels)))


def test_243_domains_are_trained_on_a_few_at_a_time(tmp_path: Path) -> None:
    domains, labels, _ = ODD["243 domains"]
    training = TrainingConfig(steps=2, batch_per_domain=8, domains_per_batch=4, sampling="epochs")
    config = RunConfig(data=save(tmp_path / "odd.npz", domains, labels), training=training).resolved()
    trained = build_run(config, config.data.load(), RunDir(tmp_path), torch.device("cpu"))
    batch = trained.loader.batch(1)
    assert (len(batch), len(batch.domains.unique())) == (32, 4)
    assert trained.task.num_domains == 243
    assert len(run(config, out=tmp_path / "run", device="cpu").source_val) == 243


def test_a_domain_that_is_too_small_gives_one_sentence(tmp_path: Path) -> None:
    lone = save(tmp_path / "lone.npz", [*numbered(2, 4), "lone"], [0, 1] * 4 + [0])
    with pytest.raises(MessiError, match="domain 'lone' requires at least 2 examples, but has 1"):
        run(RunConfig(data=lone, target=("d000",)), out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
