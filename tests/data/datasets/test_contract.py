"""The contract of every data set, on a small copy in its real layout; a new data set is found automatically."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord
from messi.core.rundir import RunDir
from messi.data.datasets.common import benchmark
from messi.data.datasets.common.base import DATASETS, DataConfig, ImageData
from messi.data.datasets.common.benchmark import Benchmark
from messi.data.images import Images
from messi.data.manifest import read_manifest
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.leave_one_out import runs_of
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

from .copies import FORMS, Notes, make_sorted, maker_of, name_of, painted

BENCHMARKS = [name for name in DATASETS.names() if issubclass(DATASETS.config(name), Benchmark)]
PICTURES = [form for form in FORMS if issubclass(DATASETS.config(name_of(form)), ImageData)]
Copy = Callable[[str], DataConfig]


@pytest.fixture(scope="session")
def copy_of(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Return a function that creates a copy once; tests that change files create their own."""
    made: dict[str, DataConfig] = {}

    def make(form: str) -> DataConfig:
        if form not in made:
            made[form] = maker_of(form)(tmp_path_factory.mktemp("copy") / name_of(form))
        return made[form]

    return make


def test_the_error_for_a_data_set_without_a_small_copy_asks_for_one() -> None:
    with pytest.raises(
        AssertionError, match=r"'brand_new' has no maker of a small copy; write one in tests/data/datasets/cop"
    ):
        maker_of("brand_new")


@pytest.mark.parametrize("form", FORMS)
def test_loaded_data_is_consistent_and_two_loads_agree(form: str, copy_of: Copy) -> None:
    config = copy_of(form)
    examples, again = config.load(), config.load()
    assert config.name == name_of(form)
    assert len(examples) == len(examples.inputs) == len(examples.domains) > 0
    assert examples.labels.unique().tolist() == list(range(len(examples.classes)))
    assert examples.domains.unique().tolist() == list(range(len(examples.domain_names)))
    assert len(set(examples.classes)) == len(examples.classes)
    assert len(set(examples.domain_names)) == len(examples.domain_names)
    assert len(examples.parts) in (0, len(examples))
    if isinstance(config, Benchmark) and config.manifest.domains:
        assert list(examples.domain_names) == config.manifest.domains
        assert list(examples.classes) == config.manifest.classes
    if isinstance(examples.inputs, Images):
        for image in examples.inputs:
            assert (image.dtype, image.dim(), len(image)) == (torch.uint8, 3, examples.inputs.channels)
    else:
        assert examples.inputs.is_floating_point()
        assert not examples.inputs.isinf().any()
    assert again.fingerprint == examples.fingerprint
    assert torch.equal(again.labels, examples.labels)
    assert torch.equal(again.domains, examples.domains)


@pytest.mark.parametrize("form", PICTURES)
def test_every_image_has_the_domain_and_class_encoded_in_it(form: str, copy_of: Copy) -> None:
    examples = copy_of(form).load()
    seen = [painted(image[:, 0, 0].tolist()) for image in examples.inputs]
    assert seen == list(zip(examples.domains.tolist(), examples.labels.tolist(), strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_a_config_is_restored_from_json(form: str, copy_of: Copy) -> None:
    config = copy_of(form)
    revived = DataConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert revived == config
    assert type(revived) is type(config)
    assert revived.fingerprint() == config.fingerprint()


@pytest.mark.parametrize("form", PICTURES)
def test_images_are_decoded_once_and_again_only_after_the_store_is_deleted(
    form: str, copy_of: Copy, home: Path
) -> None:
    config, first, second, third = copy_of(form), Notes(), Notes(), Notes()
    examples = config.load(first)
    assert [work.startswith("decoding") for work in first.works] == [True]
    assert config.load(second).fingerprint == examples.fingerprint
    assert second.works == []
    shutil.rmtree(home / "stores")
    assert config.load(third).fingerprint == examples.fingerprint
    assert third.works == first.works


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_numbers_of_a_manifest_add_up(name: str) -> None:
    manifest = read_manifest(name)
    assert manifest.name == name
    assert sorted(manifest.domains) == manifest.domains
    assert sorted(manifest.classes) == manifest.classes
    for version in manifest.versions:
        assert sum(version.totals.values()) == version.images
        if version.counts is not None:
            assert list(version.counts) == list(version.totals) == manifest.domains
            for domain, row in version.counts.items():
                assert len(row) == len(manifest.classes)
                assert sum(row) == version.totals[domain]
    assert len({version.name for version in manifest.versions}) == len(manifest.versions)
    for item in manifest.downloads:
        assert re.match(r"https?://", item.url)
        assert item.checksum is None or re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", item.checksum)


def test_the_numbers_of_the_published_data_sets_are_the_known_ones() -> None:
    """As DomainBed's and WILDS's users know them; 9,431 is the length of DomainBed's list of duplicates."""
    images = {name: [version.images for version in read_manifest(name).versions] for name in BENCHMARKS}
    assert images.pop("domain_net") == [586_575 + 9_431, 586_575]
    assert images.pop("iwildcam") == [129_809 + 14_961 + 42_791 + 7_314 + 8_154]
    assert images.pop("terra_incognita") == [24_788, 24_330]
    assert images == {"office_home": [15_588], "pacs": [9_991], "vlcs": [10_729]}
    assert read_manifest("pacs").versions[0].totals == {
        "art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "target"),
    [
        ("arrays", "y"),
        ("domain_net", "quickdraw"),
        ("feature_table", "y"),
        ("office_home", "Real World"),
        ("pacs in kfold", "sketch"),
        ("rotated_colored_mnist", "rot0-p0.5"),
        ("table", "d1"),
        ("terra_incognita as published", "location_38"),
    ],
)
def test_a_short_run_holds_one_domain_out_and_evaluates_all_of_it(
    form: str, target: str, copy_of: Copy, tmp_path: Path
) -> None:
    data = copy_of(form)
    examples = data.load()
    config = RunConfig(
        data=data,
        target=(target,),
        encoder=EncoderConfig(backbone="mlp" if form in ("arrays", "feature_table") else "tiny_cnn"),
        training=TrainingConfig(steps=2, batch_per_domain=2),
    )
    result = run(config, out=tmp_path / "run", device="cpu", load=lambda: examples)
    folder = RunDir(result.path)
    evaluated = [record for record in folder.read_records() if isinstance(record, EvaluationRecord)]
    counts = {(record.role, record.domain): record.count for record in evaluated}
    held_out = examples.domains == examples.domain_names.index(target)
    assert counts.pop(("target", target)) == held_out.sum()
    assert [domain for _, domain in counts] == [name for name in examples.domain_names if name != target]
    assert {role for role, _ in counts} == {"source_val"}
    assert folder.read_description().classes == examples.classes
    assert list(result.target) == [target]


def test_by_default_every_domain_is_held_out_once(copy_of: Copy, tmp_path: Path) -> None:
    data = copy_of("vlcs")
    examples = data.load()
    config = RunConfig(
        data=data,
        encoder=EncoderConfig(backbone="tiny_cnn"),
        training=TrainingConfig(steps=2, batch_per_domain=2),
    )
    results = [
        run(one, out=tmp_path / one.target[0], device="cpu", load=lambda: examples)
        for one in runs_of(config, examples.domain_names)
    ]
    assert [list(result.target) for result in results] == [["Caltech101"], ["LabelMe"], ["SUN09"], ["VOC2007"]]
    for result in results:
        assert {*result.source_val, *result.target} == set(examples.domain_names)


def test_iwildcam_uses_its_official_split_and_a_few_locations_per_batch(copy_of: Copy, tmp_path: Path) -> None:
    """Both follow from the protocol; the copy has exactly the four locations that a batch draws from."""
    config = RunConfig(
        data=copy_of("iwildcam"),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        training=TrainingConfig(steps=2, batch_per_domain=3),
    )
    settings = config.resolved().training
    assert (settings.split, settings.domains_per_batch, settings.selection) == ("official", 4, "unseen_val_macro_f1")
    folder = RunDir(run(config, out=tmp_path / "run", device="cpu").path)
    evaluated = [record for record in folder.read_records() if isinstance(record, EvaluationRecord)]
    counts = {(record.role, record.domain): record.count for record in evaluated}
    trained = ("0", "3", "20", "100")
    assert counts == {
        **{("source_val", place): 10 for place in trained},
        **{("unseen_val", place): 10 for place in ("7", "11")},
        **{("source_test", place): 10 for place in trained},
        **{("target", place): 10 for place in ("5", "300")},
    }
    assert folder.read_description().sources == tuple(trained)
    result = folder.read_result()
    assert (result.selection, result.validation) == ("unseen_val_macro_f1", "unseen_val")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_wrong_path_gives_one_sentence_that_states_the_expected_files(name: str, tmp_path: Path) -> None:
    make_sorted(tmp_path / "other", ("day", "night"), ("cat", "dog"), images=1)
    config = DATASETS.config(name)
    for wrong in (tmp_path / "other", tmp_path / "nowhere"):
        with pytest.raises(MessiError) as raised:
            config(path=str(wrong)).load()
        message = str(raised.value)
        assert message.startswith(f"The folder {wrong} does not contain {read_manifest(name).title}: it must contain ")
        for wanted in read_manifest(name).domains or ("metadata.csv", "train"):
            assert wanted in message
        assert "\n" not in message


@pytest.mark.parametrize("name", BENCHMARKS)
def test_missing_data_gives_one_sentence_that_states_where_to_put_it(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(url: str, path: Path, **_: object) -> None:
        raise MessiError(f"{url} could not be downloaded: no route to host; check the network.")

    monkeypatch.setattr(benchmark, "download", fail)
    manifest = read_manifest(name)
    with pytest.raises(MessiError) as raised:
        DATASETS.config(name)().load(Notes())
    message = str(raised.value)
    place = home / "data" / manifest.folder
    assert message.startswith(f"{manifest.title} is not in {place} and could not be downloaded: ")
    assert "no route to host" in message
    assert "Put it there (it must contain " in message
    assert "name its folder with --path" in message
    assert manifest.homepage in message
    assert "\n" not in message
