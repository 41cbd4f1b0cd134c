"""The settings by which papers made their numbers, written out here once more by hand."""

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import pytest

from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.base import DATASETS, DataConfig
from messi.data.datasets.pacs import PACS
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, Settings, TrainingConfig
from messi.engine.protocols import PROTOCOLS, ProtocolName, protocol_settings
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


def settings_of(protocol: ProtocolName, data: DataConfig, **given: Any) -> Settings:
    config = RunConfig(data=data, protocol=protocol, training=TrainingConfig(**given))
    return config.resolved().settings


@pytest.mark.parametrize(("protocol", "data"), EXPECTED)
def test_schedule_and_optimizer_of_a_protocol_are_those_of_its_source(protocol: ProtocolName, data: str) -> None:
    settings = settings_of(protocol, DATASETS.config(data)())
    assert tuple(getattr(settings, key) for key in SCHEDULE) == EXPECTED[protocol, data]


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("data", ["rotated_mnist", "colored_mnist", "rotated_colored_mnist", "two_subsets"])
def test_small_encoders_have_the_settings_for_small_images(protocol: ProtocolName, data: str) -> None:
    settings = settings_of(protocol, DATASETS.config(data)())
    assert tuple(getattr(settings, key) for key in SCHEDULE) == SMALL_IMAGES[protocol]
    assert settings.augmentation == "none"


def test_it_is_the_encoder_that_is_small_and_not_the_data() -> None:
    large = RunConfig(data=PACS(), protocol="domainbed").resolved()
    small = RunConfig(data=PACS(), protocol="domainbed", encoder=EncoderConfig(backbone="tiny_cnn")).resolved()
    assert (large.settings.learning_rate, small.settings.learning_rate) == (5e-5, 1e-3)
    assert (large.encoder.pretrained, small.encoder.pretrained) == (True, False)


def test_splits_selection_and_reported_part_tell_the_protocols_apart() -> None:
    """DomainBed and GMoE augment validation images, SWAD does not; all three report on 80 % of the target."""
    expected = {
        "messi": ("stratified", 0.2, False, "all"),
        "domainbed": ("domainbed", 0.2, True, "in"),
        "swad": ("domainbed", 0.2, False, "in"),
        "gmoe": ("domainbed", 0.2, True, "in"),
    }
    for name in NAMES:
        settings = settings_of(name, PACS())
        stated = (
            settings.split,
            settings.validation_fraction,
            settings.validation_augmentation,
            settings.target_part,
        )
        assert stated == expected[name]
        assert (settings.selection, settings.sampling, settings.domains_per_batch) == (
            "source_val",
            "replacement",
            None,
        )
        assert settings.augmentation == "domainbed"


def test_iwildcam_follows_its_official_parts_in_the_papers_protocol() -> None:
    settings = settings_of("messi", DATASETS.config("iwildcam")())
    assert (settings.split, settings.selection) == ("official", "unseen_val_macro_f1")
    assert (settings.domains_per_batch, settings.batch_per_domain) == (4, 8)


@pytest.mark.parametrize("protocol", NAMES)
def test_every_protocol_leaves_nothing_open_for_any_data_and_invents_no_setting(protocol: ProtocolName) -> None:
    fields = {field.name for field in dataclasses.fields(TrainingConfig)}
    open_fields = {f.name for f in dataclasses.fields(TrainingConfig) if f.default is None} - {"augmentation"}
    datas = [*DATASETS.names(), "something_new"]
    for data in datas:
        for small in (True, False):
            stated = protocol_settings(protocol, data, small=small)
            assert open_fields <= stated.keys() <= fields
    assert set(PROTOCOLS[protocol]) - {"", "small images"} <= set(DATASETS.names()), "a data set is misspelt"
    for part in PROTOCOLS[protocol].values():
        assert part.keys() <= PROTOCOLS[protocol][""].keys()


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("backbone", [*SMALL, None])
def test_a_resolved_config_has_no_open_setting_deviates_in_nothing_and_resolves_to_itself(
    protocol: ProtocolName, backbone: str | None
) -> None:
    config = RunConfig(data=PACS(), protocol=protocol, encoder=EncoderConfig(backbone=backbone)).resolved()
    still_open = {key for key, value in vars(config.settings).items() if value is None}
    assert still_open == {"domains_per_batch"}, "None there is all domains"
    assert config.encoder.backbone == (backbone or "deit_tiny_patch16_224")
    assert config.deviations() == {}
    assert config.resolved() == config
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))).resolved() == config


def test_an_open_config_says_that_it_is_open() -> None:
    with pytest.raises(MessiError, match="still open; use the one that resolved"):
        _ = RunConfig(data=PACS()).settings


GIVEN: dict[str, Any] = {
    "steps": 7,
    "batch_per_domain": 3,
    "domains_per_batch": 2,
    "sampling": "epochs",
    "learning_rate": 0.5,
    "weight_decay": 0.25,
    "validation_augmentation": False,
    "evaluate_every": 2,
    "selection": "unseen_val",
    "split": "stratified",
    "validation_fraction": 0.5,
    "target_part": "all",
}


def test_what_is_given_wins_and_is_told_as_a_deviation() -> None:
    config = RunConfig(data=PACS(), protocol="domainbed", training=TrainingConfig(**GIVEN)).resolved()
    assert {key: getattr(config.settings, key) for key in GIVEN} == GIVEN
    assert config.deviations() == GIVEN
    for key, value in GIVEN.items():
        one = RunConfig(data=PACS(), protocol="domainbed", training=TrainingConfig(**{key: value})).resolved()
        assert one.deviations() == {key: value}


def test_to_give_what_the_protocol_says_is_no_deviation() -> None:
    stated = protocol_settings("gmoe", "pacs", small=False)
    config = RunConfig(data=PACS(), protocol="gmoe", training=TrainingConfig(**stated)).resolved()
    assert config.deviations() == {}
    assert config == RunConfig(data=PACS(), protocol="gmoe").resolved()


def test_settings_that_no_protocol_speaks_of_are_no_deviations() -> None:
    training = TrainingConfig(log_every=3, deterministic=False)
    assert RunConfig(data=PACS(), protocol="swad", training=training).resolved().deviations() == {}


def test_the_result_of_a_run_carries_its_protocol_and_its_deviations(tmp_path: Path) -> None:
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


def test_a_protocol_that_does_not_exist_gets_one_sentence() -> None:
    with pytest.raises(MessiError, match=r"no protocol named 'domainbet'; there are: .* Did you mean 'domainbed'\?"):
        protocol_settings("domainbet", "pacs", small=False)
    with pytest.raises(MessiError, match=r"protocol must be one of 'messi', 'domainbed', 'swad', 'gmoe', but is 'x'"):
        RunConfig(data=PACS(), protocol="x")  # type: ignore[arg-type]


def test_the_data_decides_encoder_and_augmentation_where_none_are_given() -> None:
    expected = {
        "pacs": ("deit_tiny_patch16_224", "domainbed"),
        "rotated_mnist": ("small_cnn", "none"),
        "two_subsets": ("identity", "none"),
    }
    for name, (backbone, augmentation) in expected.items():
        config = RunConfig(data=DATASETS.config(name)()).resolved()
        assert (config.encoder.backbone, config.settings.augmentation) == (backbone, augmentation)
    assert RunConfig(data=Arrays(path="x.npz")).resolved().encoder.backbone == "mlp"
    training = TrainingConfig(augmentation="none")
    assert RunConfig(data=PACS(), training=training).resolved().settings.augmentation == "none"
