"""The settings behind published results, written out here a second time by hand."""

import dataclasses
import hashlib
import json
import typing
from pathlib import Path
from typing import Any

import pytest

from messi.algorithms.erm import ERM
from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.base import DATASETS, DataConfig
from messi.data.datasets.pacs import PACS
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.protocols import PROTOCOLS, ProtocolName, protocol_training
from messi.engine.run import run
from messi.models.encoder import SMALL, EncoderConfig

NAMES: tuple[ProtocolName, ...] = typing.get_args(ProtocolName)
SCHEDULE = ("steps", "evaluate_every", "batch_per_domain", "learning_rate", "weight_decay")

# Steps, steps between evaluations, images per domain, learning rate, weight decay.
EXPECTED: dict[tuple[ProtocolName, str], tuple[int, int, int, float, float]] = {
    ("messi", "pacs"): (5000, 200, 32, 3e-5, 1e-6),
    ("messi", "vlcs"): (5000, 200, 32, 3e-5, 1e-6),
    ("messi", "office_home"): (10000, 200, 32, 1e-5, 1e-6),
    ("messi", "terra_incognita"): (10000, 200, 32, 5e-5, 1e-4),
    ("messi", "domain_net"): (15000, 500, 32, 5e-5, 0),
    ("messi", "iwildcam"): (150000, 5000, 8, 3e-5, 0),
    ("domainbed", "pacs"): (5001, 300, 32, 5e-5, 0),
    ("domainbed", "vlcs"): (5001, 300, 32, 5e-5, 0),
    ("domainbed", "office_home"): (5001, 300, 32, 5e-5, 0),
    ("domainbed", "terra_incognita"): (5001, 300, 32, 5e-5, 0),
    ("domainbed", "domain_net"): (5001, 1000, 32, 5e-5, 0),
    ("swad", "pacs"): (5001, 100, 32, 5e-5, 0),
    ("swad", "vlcs"): (5001, 50, 32, 5e-5, 0),
    ("swad", "office_home"): (5001, 100, 32, 5e-5, 0),
    ("swad", "terra_incognita"): (5001, 100, 32, 5e-5, 0),
    ("swad", "domain_net"): (15001, 500, 32, 5e-5, 0),
    ("gmoe", "pacs"): (5001, 300, 32, 3e-5, 1e-6),
    ("gmoe", "vlcs"): (5001, 300, 32, 3e-5, 1e-6),
    ("gmoe", "office_home"): (5001, 300, 32, 1e-5, 1e-6),
    ("gmoe", "terra_incognita"): (5001, 300, 32, 5e-5, 1e-4),
    ("gmoe", "domain_net"): (15001, 500, 32, 5e-5, 0),
}
SMALL_IMAGES: dict[ProtocolName, tuple[int, int, int, float, float]] = {
    "messi": (5000, 200, 32, 1e-3, 1e-6),
    "domainbed": (5001, 100, 64, 1e-3, 0),
    "swad": (5001, 100, 64, 1e-3, 0),
    "gmoe": (5001, 100, 64, 1e-3, 0),
}
RECORDED = json.loads(Path(__file__).with_name("recorded_configs.json").read_text())
"""Settings, fingerprints and folder names as version 0.1 computed them."""
ADDED = {"start": None, "split_seed": None}
ADDED_TO_TRAINING = {
    "average_from": 0.02,
    "ema_decay": 0.999,
    "head_weight_decay": None,
    "layer_decay": 1.0,
    "probe_steps": 0,
    "probe_learning_rate": 1e-3,
}
"""Settings that version 0.1 did not have, with the values that compute the same as it did."""


def of_version_0_1(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a config that version 0.1 had; all others must have their defaults."""
    values = config.to_dict()
    assert {name: values.pop(name) for name in ADDED} == ADDED
    assert {name: values["training"].pop(name) for name in ADDED_TO_TRAINING} == ADDED_TO_TRAINING
    return values


def fingerprint(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def data_of(name: str) -> DataConfig:
    """Return the config of a data set; data that is given by its path is not opened."""
    config = DATASETS.config(name)
    required = [field.name for field in dataclasses.fields(config) if field.default is dataclasses.MISSING]
    data: DataConfig = config(**dict.fromkeys(required, "somewhere"))
    return data


def training_of(protocol: ProtocolName, data: DataConfig) -> TrainingConfig:
    return RunConfig(data=data, protocol=protocol).resolved().training


def test_schedule_and_optimizer_match_the_source_of_each_protocol() -> None:
    for (protocol, data), expected in EXPECTED.items():
        training = training_of(protocol, DATASETS.config(data)())
        assert tuple(getattr(training, key) for key in SCHEDULE) == expected, f"protocol {protocol} on {data}"


def test_small_encoders_use_the_settings_for_small_images() -> None:
    for protocol in NAMES:
        for data in ("rotated_mnist", "colored_mnist", "rotated_colored_mnist", "two_subsets"):
            training = training_of(protocol, DATASETS.config(data)())
            case = f"protocol {protocol} on {data}"
            assert tuple(getattr(training, key) for key in SCHEDULE) == SMALL_IMAGES[protocol], case
            assert training.augmentation == "none", case


def test_features_have_the_same_settings_in_all_protocols_and_splits_of_their_own() -> None:
    """No paper states settings for features; these are from docs/feature_study.md."""
    for protocol in NAMES:
        training = training_of(protocol, Arrays(path="x.npz"))
        assert tuple(getattr(training, key) for key in SCHEDULE) == (300, 20, 32, 2e-3, 0), protocol
        assert training.split == PROTOCOLS[protocol].default.split
        assert training.target_part == PROTOCOLS[protocol].default.target_part
    plain = RunConfig(data=Arrays(path="x.npz"), encoder=EncoderConfig(backbone="mlp")).resolved().training
    assert (plain.steps, plain.learning_rate) == (5000, 1e-3), "another network keeps its settings"


def test_all_resolved_settings_are_those_of_version_0_1() -> None:
    for group in RECORDED["training"]:
        for case in group["runs"]:
            protocol, data, backbone = case.split()
            encoder = EncoderConfig(backbone=backbone)
            config = RunConfig(data=data_of(data), protocol=protocol, encoder=encoder, algorithm=ERM.Config())
            found = of_version_0_1(config.resolved())["training"]
            assert found == group["training"], f"protocol, data set, backbone: {case}"


def test_the_settings_of_version_0_1_keep_their_fingerprints_and_folder_names() -> None:
    for recorded in RECORDED["runs"]:
        given = dict(recorded["given"])
        target, sources = (tuple(given.pop(key, ())) for key in ("target", "sources"))
        training = TrainingConfig(**given.pop("training", {}))
        data = data_of(given.pop("data"))
        config = RunConfig(
            data=data, target=target, sources=sources, algorithm=ERM.Config(), training=training, **given
        )
        resolved = config.resolved()
        case = str(recorded["given"])
        fingerprints = [fingerprint(of_version_0_1(one)) for one in (config, resolved)]
        assert fingerprints == [recorded["open"], recorded["resolved"]], case
        folder = resolved.folder_name().replace(resolved.fingerprint(), fingerprints[1])
        assert folder == recorded["folder"], case
        assert resolved.deviations() == recorded["deviations"], case


def test_the_encoder_decides_what_is_small_and_not_the_data() -> None:
    large = RunConfig(data=PACS(), protocol="domainbed").resolved()
    small = RunConfig(data=PACS(), protocol="domainbed", encoder=EncoderConfig(backbone="tiny_cnn")).resolved()
    assert (large.training.learning_rate, small.training.learning_rate) == (5e-5, 1e-3)
    assert (large.encoder.pretrained, small.encoder.pretrained) == (True, False)


def test_splits_selection_and_reported_part_differ_between_protocols() -> None:
    """DomainBed and GMoE augment validation images, SWAD does not; all three report on 80 % of the target."""
    expected = {
        "messi": ("stratified", 0.2, False, "all"),
        "domainbed": ("domainbed", 0.2, True, "in"),
        "swad": ("domainbed", 0.2, False, "in"),
        "gmoe": ("domainbed", 0.2, True, "in"),
    }
    for name in NAMES:
        training = training_of(name, PACS())
        stated = (
            training.split,
            training.validation_fraction,
            training.validation_augmentation,
            training.target_part,
        )
        assert stated == expected[name], name
        same = (training.selection, training.sampling, training.domains_per_batch, training.augmentation)
        assert same == ("source_val", "replacement", None, "domainbed"), name


def test_iwildcam_follows_its_official_split_in_the_papers_protocol() -> None:
    training = training_of("messi", DATASETS.config("iwildcam")())
    assert (training.split, training.selection) == ("official", "unseen_val_macro_f1")
    assert (training.domains_per_batch, training.batch_per_domain) == (4, 8)


def test_every_protocol_states_all_settings_except_the_augmentation() -> None:
    """None means all domains for ``domains_per_batch``, and ``weight_decay`` for ``head_weight_decay``."""
    open_fields = set(TrainingConfig.open_fields()) - {"augmentation", "domains_per_batch", "head_weight_decay"}
    for name, protocol in PROTOCOLS.items():
        assert {key for key in open_fields if getattr(protocol.default, key) is None} == set(), name
        assert set(protocol.by_data) <= set(DATASETS.names()), f"{name}: a data set is misspelt"
        parts = (protocol.default, protocol.small_images, protocol.features, *protocol.by_data.values())
        defaults = TrainingConfig()
        others = [f.name for f in dataclasses.fields(TrainingConfig) if f.name not in TrainingConfig.open_fields()]
        for key in ("augmentation", *others):
            assert {getattr(part, key) for part in parts} == {getattr(defaults, key)}, f"{name} states {key}"


def test_a_resolved_config_has_no_open_setting_and_no_deviation_and_resolves_to_itself() -> None:
    for protocol in NAMES:
        for backbone in (*SMALL, None):
            case = f"protocol {protocol}, backbone {backbone}"
            config = RunConfig(data=PACS(), protocol=protocol, encoder=EncoderConfig(backbone=backbone)).resolved()
            still_open = {key for key, value in vars(config.training).items() if value is None}
            all_domains = {"domains_per_batch"} if backbone != "residual_mlp" else set()
            assert still_open == {*all_domains, "head_weight_decay"}, f"{case}: None has a meaning there"
            assert config.encoder.backbone == (backbone or "deit_tiny_patch16_224"), case
            assert config.deviations() == {}, case
            assert config.resolved() == config, case
            assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))).resolved() == config, case


GIVEN: dict[str, Any] = {
    "steps": 7,
    "batch_per_domain": 3,
    "domains_per_batch": 2,
    "sampling": "epochs",
    "learning_rate": 0.5,
    "weight_decay": 0.25,
    "head_weight_decay": 0.75,
    "sagm_alpha": 0.5,
    "swad_tolerance": 0.5,
    "augmentation": "none",
    "validation_augmentation": False,
    "evaluate_every": 2,
    "selection": "unseen_val",
    "split": "stratified",
    "validation_fraction": 0.5,
    "target_part": "all",
}


def test_a_given_setting_wins_and_is_reported_as_a_deviation() -> None:
    assert GIVEN.keys() == set(TrainingConfig.open_fields())
    config = RunConfig(data=PACS(), protocol="domainbed", training=TrainingConfig(**GIVEN)).resolved()
    assert {key: getattr(config.training, key) for key in GIVEN} == GIVEN
    assert config.deviations() == GIVEN
    for key, value in GIVEN.items():
        one = RunConfig(data=PACS(), protocol="domainbed", training=TrainingConfig(**{key: value})).resolved()
        assert one.deviations() == {key: value}


def test_giving_the_protocols_own_settings_is_no_deviation() -> None:
    stated = protocol_training("gmoe", "pacs")
    config = RunConfig(data=PACS(), protocol="gmoe", training=stated).resolved()
    assert config.deviations() == {}
    assert config == RunConfig(data=PACS(), protocol="gmoe").resolved()


def test_settings_that_no_protocol_states_are_no_deviations() -> None:
    training = TrainingConfig(log_every=3, deterministic=False)
    assert RunConfig(data=PACS(), protocol="swad", training=training).resolved().deviations() == {}


def test_the_result_of_a_run_states_its_protocol_and_its_deviations(tmp_path: Path) -> None:
    config = RunConfig(
        data=TwoSubsets(per_domain=30),
        target=("a1",),
        protocol="swad",
        training=TrainingConfig(steps=2, batch_per_domain=4, split="stratified"),
    )
    result = json.loads((run(config, out=tmp_path / "run", device="cpu").path / "result.json").read_text())
    assert result["protocol"] == "swad"
    assert result["deviations"] == {"split": "stratified", "batch_per_domain": 4, "steps": 2}
    assert (result["target_part"], result["selection"]) == ("in", "source_val")


def test_a_probe_has_at_most_as_many_steps_as_the_run() -> None:
    """The number of steps may be given, or be the protocol's."""
    wrong = r"^probe_steps must be at most steps = {}, but is 8\.$"
    TrainingConfig(steps=8, probe_steps=8)
    with pytest.raises(MessiError, match=wrong.format(7)):
        TrainingConfig(steps=7, probe_steps=8)
    with pytest.raises(MessiError, match=wrong.format(5000).replace("8", "6000")):
        RunConfig(data=PACS(), training=TrainingConfig(probe_steps=6000)).resolved()


def test_an_unknown_protocol_gives_a_one_sentence_error() -> None:
    with pytest.raises(MessiError, match=r"no protocol named 'domainbet'; available: .* Did you mean 'domainbed'\?"):
        protocol_training("domainbet", "pacs")
    with pytest.raises(MessiError, match=r"protocol must be one of 'messi', 'domainbed', 'swad', 'gmoe', but is 'x'"):
        RunConfig(data=PACS(), protocol="x")  # type: ignore[arg-type]


def test_the_data_set_decides_encoder_and_augmentation_unless_they_are_given() -> None:
    expected = {
        "pacs": ("deit_tiny_patch16_224", "domainbed"),
        "rotated_mnist": ("small_cnn", "none"),
        "two_subsets": ("identity", "none"),
    }
    for name, (backbone, augmentation) in expected.items():
        config = RunConfig(data=DATASETS.config(name)()).resolved()
        assert (config.encoder.backbone, config.training.augmentation) == (backbone, augmentation)
    assert RunConfig(data=Arrays(path="x.npz")).resolved().encoder.backbone == "residual_mlp"
    training = TrainingConfig(augmentation="none")
    assert RunConfig(data=PACS(), training=training).resolved().training.augmentation == "none"
