"""Runs in every tuning mode: cached features, exact resume, plain models, and what contradicts what."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from messi.algorithms.erm import ERM
from messi.algorithms.fish import Fish
from messi.algorithms.messi import MESSI
from messi.core.batch import Batch
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.core.seeding import derive_seed
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data import feature_files
from messi.data.datasets.folder import Folder
from messi.data.disk import feature_home
from messi.data.examples import Examples
from messi.data.progress import LogProgress
from messi.engine.average_runs import average_runs
from messi.engine.build import build_run
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.run import run, run_until
from messi.evaluation.model import load
from messi.models.encoder import Encoder, EncoderConfig

BACKBONE, SIZE, WIDTH = "test_vit", 32, 64
FILES = ("model.safetensors", "last.safetensors", "seen.safetensors", "records.jsonl", "result.json", "run.json")
DOMAINS, CLASSES, NUMBER = ("paint", "photo", "sketch"), ("cat", "dog"), 6
TOTAL = len(DOMAINS) * len(CLASSES) * NUMBER
MODES = ("head", "last:2", "lora:2")


class Counted(LogProgress):
    """Counts the images that are encoded."""

    images = 0

    def advanced(self, number: int) -> None:
        self.images += number


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images, dark cats and bright dogs, and the weights of a network."""
    root = tmp_path_factory.mktemp("world")
    noise = np.random.default_rng(0)
    for domain in DOMAINS:
        for bright, label in zip((0, 120), CLASSES, strict=True):
            for number in range(NUMBER):
                path = root / "images" / domain / label / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray((noise.integers(0, 130, (40, 36, 3)) + bright).astype(np.uint8)).save(path)
    torch.manual_seed(3)
    save_file(timm.create_model(BACKBONE, num_classes=0).state_dict(), root / "weights.safetensors")
    return root


@pytest.fixture(autouse=True)
def small_files(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a feature file hold 10 images, and every test have its own cache."""
    monkeypatch.setenv("MESSI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(feature_files, "PART", 10)


@pytest.fixture
def make(world: Path) -> Callable[..., RunConfig]:
    def config(tune: str = "head", *, views: int = 1, algorithm: Any = None, **training: Any) -> RunConfig:
        settings = {"steps": 6, "evaluate_every": 3, "batch_per_domain": 4, "log_every": 2, **training}
        return RunConfig(
            data=Folder(path=str(world / "images")),
            target=("sketch",),
            algorithm=algorithm or ERM.Config(),
            encoder=EncoderConfig(
                backbone=BACKBONE, image_size=SIZE, weights=str(world / "weights.safetensors"), tune=tune, views=views
            ),
            training=TrainingConfig(**settings),
        )

    return config


Make = Callable[..., RunConfig]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def feature_paths() -> list[Path]:
    return sorted(feature_home().glob("*/*.safetensors"))


def test_every_image_is_encoded_once_for_all_methods_and_targets(make: Make, tmp_path: Path) -> None:
    progress = [Counted() for _ in range(4)]
    run(make(), out=tmp_path / "a", device="cpu", progress=progress[0])
    run(make(algorithm=MESSI.Config()), out=tmp_path / "b", device="cpu", progress=progress[1])
    run(dataclasses.replace(make(), target=("photo",)), out=tmp_path / "c", device="cpu", progress=progress[2])
    run(make(views=3), out=tmp_path / "d", device="cpu", progress=progress[3])
    assert [one.images for one in progress] == [TOTAL, 0, 0, 3 * TOTAL]
    assert len(feature_paths()) == 2 * 4


def parts_of(config: RunConfig, folder: Path) -> Any:
    resolved = config.resolved()
    return build_run(resolved, resolved.data.load(), RunDir(folder), torch.device("cpu"))


def test_training_on_the_cache_equals_training_through_the_frozen_encoder(make: Make, tmp_path: Path) -> None:
    """The same steps in plain torch: images through the encoder at every step, and Adam for the classifier."""
    config = make(algorithm=ERM.Config())
    run(config, out=tmp_path / "run", device="cpu")
    through = parts_of(dataclasses.replace(make("full", augmentation="none")), tmp_path / "none")
    algorithm, loader = through.algorithm, through.loader
    algorithm.encoder.requires_grad_(requires_grad=False).eval()
    resolved = config.resolved().training
    adam = torch.optim.Adam(
        algorithm.classifier.parameters(), resolved.learning_rate, weight_decay=resolved.weight_decay
    )
    for step in range(1, 7):
        torch.manual_seed(derive_seed("step", 0, step))
        batch = loader.batch(step)
        assert batch.inputs.shape == (8, 3, SIZE, SIZE)
        adam.zero_grad()
        algorithm.loss(batch)["cls"].backward()
        adam.step()
    tensors, _ = read_tensors(tmp_path / "run" / "last.safetensors")
    for name, parameter in algorithm.classifier.named_parameters():
        torch.testing.assert_close(tensors[f"algorithm/classifier.{name}"], parameter, rtol=1e-5, atol=1e-6)


def test_features_are_those_of_prediction_and_views_are_augmented(make: Make, tmp_path: Path) -> None:
    parts = parts_of(make(views=3), tmp_path / "run")
    plain = parts_of(make("full"), tmp_path / "none")
    sealed = parts.loader.data
    sealed.open_target()
    plain.loader.data.open_target()
    everything = torch.arange(TOTAL)
    with torch.inference_mode():
        expected = plain.algorithm.eval().encoder(next(plain.loader.inputs([everything])))
    found = [sealed.features(everything, view) for view in range(3)]
    torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=1e-5)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert ((found[one] - found[other]).abs().amax(1) > 1e-3).all(), "every view of every image differs"


def test_a_step_draws_views_by_seed_and_step_and_evaluation_uses_the_plain_one(make: Make, tmp_path: Path) -> None:
    parts, again = (parts_of(make(views=3), tmp_path / "run") for _ in range(2))
    parts.loader.batch(1)
    batch: Batch = parts.loader.batch(5)
    assert torch.equal(batch.inputs, again.loader.batch(5).inputs)
    examples = parts.loader._sampler.block(0)[0][4]
    sealed = parts.loader.data
    views = [int((sealed.features(examples, view) == batch.inputs).all(1).nonzero().numel()) for view in range(3)]
    assert sum(views) == len(batch)
    assert sum(count > 0 for count in views) > 1
    indices = sealed.indices("source_val", 0)
    inputs, _ = next(parts.loader.evaluation("source_val", 0, size=64))
    assert torch.equal(inputs, sealed.features(indices, 0))


def test_the_features_of_the_target_are_sealed(make: Make, tmp_path: Path) -> None:
    sealed = parts_of(make(), tmp_path / "run").loader.data
    with pytest.raises(RuntimeError, match="sealed"):
        sealed.features(torch.arange(TOTAL))


class Killed(BaseException):
    """Ends a run as SIGKILL does: nothing is cleaned up by the code that is tested."""


def test_encoding_resumes_after_a_kill_with_the_same_bits(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(make(views=2), out=tmp_path / "whole", device="cpu")
    expected = {path.name: path.read_bytes() for path in feature_paths()}
    monkeypatch.setenv("MESSI_HOME", str(tmp_path / "other"))

    def die(path: Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
        if path.name.startswith("000002"):
            raise Killed
        write_tensors(path, tensors, description)

    monkeypatch.setattr(feature_files, "write_tensors", die)
    with pytest.raises(Killed):
        run(make(views=2), out=tmp_path / "run", device="cpu")
    assert len(feature_paths()) == 2
    assert RunDir(tmp_path / "run").state() == "new", "nothing of a run exists before its features do"
    monkeypatch.setattr(feature_files, "write_tensors", write_tensors)
    progress = Counted()
    run(make(views=2), out=tmp_path / "run", device="cpu", progress=progress)
    assert progress.images == 2 * (TOTAL - 20)
    assert {path.name: path.read_bytes() for path in feature_paths()} == expected
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def swap(path: Path) -> None:
    path.write_bytes(path.with_name("000000.safetensors").read_bytes())


def forge(path: Path) -> None:
    tensors, description = read_tensors(path)
    write_tensors(path, {"features": tensors["features"].double()}, description)


@pytest.mark.parametrize("change", [damage, truncate, swap, forge, Path.unlink])
def test_a_damaged_file_is_encoded_again_and_never_used(
    make: Make, tmp_path: Path, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    run(make(), out=tmp_path / "before", device="cpu")
    third = feature_paths()[2]
    whole = third.read_bytes()
    change(third)
    progress = Counted()
    run(make(), out=tmp_path / "after", device="cpu", progress=progress)
    assert progress.images == 10
    assert third.read_bytes() == whole
    assert contents(tmp_path / "after") == contents(tmp_path / "before")
    assert ("is encoded again" in caplog.text) == (change is not Path.unlink)


@pytest.mark.parametrize("change", ["weights", "data", "size"])
def test_other_weights_data_or_sizes_have_other_features(make: Make, world: Path, tmp_path: Path, change: str) -> None:
    config = make()
    run(config, out=tmp_path / "a", device="cpu")
    encoder, data = config.encoder, config.data
    if change == "weights":
        torch.manual_seed(4)
        save_file(timm.create_model(BACKBONE, num_classes=0).state_dict(), tmp_path / "w.safetensors")
        encoder = dataclasses.replace(encoder, weights=str(tmp_path / "w.safetensors"))
    elif change == "size":
        encoder = dataclasses.replace(encoder, image_size=48)
    progress = Counted()
    load = None
    if change == "data":
        examples = data.load()

        def load() -> Examples:
            return dataclasses.replace(examples, fingerprint="other")

    other = dataclasses.replace(config, encoder=encoder, data=data)
    run(other, out=tmp_path / "b", device="cpu", progress=progress, load=load)
    assert progress.images == TOTAL


@pytest.mark.parametrize(
    ("tune", "views", "algorithm", "averaging"),
    [
        ("head", 1, Fish.Config(), "ma"),
        ("head", 2, MESSI.Config(), "none"),
        ("last:2", 1, ERM.Config(), "ma"),
        ("lora:2", 1, ERM.Config(), "ma"),
        ("lora:2", 1, Fish.Config(), "none"),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    make: Make, tmp_path: Path, tune: str, views: int, algorithm: Any, averaging: str
) -> None:
    config = make(tune, views=views, algorithm=algorithm, averaging=averaging)
    run(config, out=tmp_path / "whole", device="cpu")
    run_until(config, 3, out=tmp_path / "run", device="cpu")
    run(config, out=tmp_path / "run", device="cpu")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


@pytest.mark.parametrize("tune", MODES)
def test_a_checkpoint_has_what_trains_and_a_model_has_everything(make: Make, tmp_path: Path, tune: str) -> None:
    result = run(make(tune), out=tmp_path / "run", device="cpu")
    folder = RunDir(result.path)
    checkpoint, model = read_tensors(folder.last)[0], read_tensors(folder.model)[0]
    inside = {name for name in checkpoint if "encoder.network" in name}
    if tune == "head":
        assert inside == set()
    elif tune == "lora:2":
        assert {name.rpartition(".")[2] for name in inside} == {"up", "down"}
    else:
        assert all(
            name.startswith(("blocks.4", "blocks.5", "norm"), len("algorithm/encoder.network.")) for name in inside
        )
    plain = timm.create_model(BACKBONE, num_classes=0)
    assert {f"encoder.network.{name}" for name in plain.state_dict()} == {n for n in model if "network" in n}
    moments = [name for name in checkpoint if name.endswith("exp_avg")]
    weights = [
        n for n in checkpoint if n.startswith("algorithm/") and n.rpartition(".")[2] in ("weight", "bias", "up", "down")
    ]
    assert len(moments) == len(weights), "Adam only has moments of what trains"


@pytest.mark.parametrize("tune", MODES)
def test_a_saved_model_predicts_images_as_the_run_did(make: Make, world: Path, tmp_path: Path, tune: str) -> None:
    result = run(make(tune, learning_rate=1e-2), out=tmp_path / "run", device="cpu")
    model = load(tmp_path / "run")
    paths = sorted((world / "images" / "sketch").glob("*/*.png"))
    answers = model.predict(paths)
    right = sum(path.parent.name == label for path, label in zip(paths, answers.labels, strict=True))
    assert right / len(paths) == result.target["sketch"]
    found = {(record.role, record.domain): record.accuracy for record in evaluate_run(tmp_path / "run", device="cpu")}
    assert found["target", "sketch"] == result.target["sketch"]
    assert {domain: found["source_val", domain] for domain in ("paint", "photo")} == result.source_val
    encoder = model.algorithm.encoder
    assert isinstance(encoder, Encoder)
    assert all(parameter.requires_grad for parameter in encoder.parameters()), "a loaded model is an ordinary one"
    assert list((tmp_path / "run" / "examples").glob("*.png"))


def test_the_frozen_weights_of_a_resumed_run_must_not_have_changed(make: Make, world: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes((world / "weights.safetensors").read_bytes())
    config = make("last:1")
    config = dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, weights=str(weights)))
    run_until(config, 3, out=tmp_path / "run", device="cpu")
    torch.manual_seed(9)
    save_file(timm.create_model(BACKBONE, num_classes=0).state_dict(), weights)
    with pytest.raises(MessiError, match="frozen part of the encoder started from have changed"):
        run(config, out=tmp_path / "run", device="cpu")


@pytest.mark.parametrize("tune", MODES)
def test_runs_start_from_any_model_and_can_be_averaged(make: Make, tmp_path: Path, tune: str) -> None:
    run(make("head"), out=tmp_path / "first", device="cpu")
    configs = [
        dataclasses.replace(make(tune), start=str(tmp_path / "first"), seed=seed, split_seed=0) for seed in (1, 2)
    ]
    folders = [run(config, out=tmp_path / f"{tune[:4]}{config.seed}", device="cpu").path for config in configs]
    average_runs(folders, out=tmp_path / "average", device="cpu")
    both, mean = [read_tensors(folder / "model.safetensors")[0] for folder in folders], load(tmp_path / "average")
    for name, value in mean.algorithm.state_dict().items():
        torch.testing.assert_close(value, (both[0][name] + both[1][name]) / 2, rtol=1e-6, atol=1e-7)
    changed = {name for name in both[0] if not torch.equal(both[0][name], both[1][name])}
    assert any("network" in name for name in changed) == (tune != "head")


def test_averaged_low_rank_changes_become_a_plain_model(make: Make, tmp_path: Path) -> None:
    """The factors are averaged and then merged."""
    run(make("lora:2", averaging="ma", average_from=0.0, learning_rate=1e-2), out=tmp_path / "run", device="cpu")
    tensors, _ = read_tensors(tmp_path / "run" / "last.safetensors")
    names = [name for name, _ in parts_of(make("lora:2"), tmp_path / "none").algorithm.named_parameters()]
    trained = [name for name in names if name.endswith((".down", ".up")) or "classifier" in name]
    means = {name: tensors[f"average/0/{number}"] for number, name in enumerate(trained)}
    layer = "encoder.network.blocks.0.attn.qkv"
    change = means[f"{layer}.parametrizations.weight.0.up"] @ means[f"{layer}.parametrizations.weight.0.down"]
    original = load_file(str(make().encoder.weights))["blocks.0.attn.qkv.weight"]
    state = load(tmp_path / "run").algorithm.state_dict()
    assert change.abs().max() > 1e-4
    torch.testing.assert_close(state[f"{layer}.weight"], original + 2 * change)


def test_layer_decay_scales_the_rates_of_what_trains(make: Make, tmp_path: Path) -> None:
    parts = parts_of(make("last:2", layer_decay=0.5, learning_rate=1.0), tmp_path / "run")
    rates = {group["lr"] for group in parts.stepper.optimizers["main"].param_groups}
    assert rates == {1.0, 0.5, 0.25}


def test_defaults_suit_the_part_that_trains(make: Make) -> None:
    open_fields = TrainingConfig(batch_per_domain=4)
    configs = {
        tune: dataclasses.replace(make(tune), training=open_fields).resolved()
        for tune in ("full", "head", "last:2", "lora:2")
    }
    rates = {tune: config.training.learning_rate for tune, config in configs.items()}
    assert rates == {"full": 3e-5, "head": 1e-3, "last:2": 3e-5, "lora:2": pytest.approx(3e-4)}
    assert configs["head"].training.augmentation == "none"
    assert configs["head"].deviations() == {"batch_per_domain": 4}
    assert "tune" not in configs["full"].to_dict()["encoder"], "earlier configs keep their fingerprints"
    assert RunConfig.from_dict(configs["head"].to_dict()) == configs["head"]


def test_settings_that_contradict_a_frozen_encoder_are_refused(make: Make, tmp_path: Path) -> None:
    for config, message in (
        (make(probe_steps=2), "probe_steps requires an encoder that trains"),
        (make(augmentation="domainbed"), "contradicts 1 view"),
        (make(views=2, augmentation="none"), "contradicts 2 view"),
        (make(validation_augmentation=True), "validates on plain images"),
        (_random(make()), "the encoder starts from random ones"),
    ):
        with pytest.raises(MessiError, match=message):
            run(config, out=tmp_path / "run", device="cpu")
        assert not (tmp_path / "run").exists()


def _random(config: RunConfig) -> RunConfig:
    encoder = dataclasses.replace(config.encoder, weights=None, pretrained=False)
    return dataclasses.replace(config, encoder=encoder)
