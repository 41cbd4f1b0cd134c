"""Tests that need a GPU; CI has none, so they are run by hand."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from messi.algorithms.common.base import Algorithm, LossAlgorithm
from messi.algorithms.dann import DANN
from messi.algorithms.erm import ERM
from messi.algorithms.fish import Fish
from messi.algorithms.messi import MESSI, PairReduction
from messi.algorithms.mldg import MLDG
from messi.core import gpu_kernels, hardware
from messi.core.batch import Batch, InputSpec, LossTerms, Task
from messi.core.processes import Processes, join, leave
from messi.core.records import EvaluationRecord, TrainRecord
from messi.core.rundir import RunDir
from messi.core.seeding import deterministic
from messi.data.augment import AugmentationConfig, draw_parameters, prepare_augmented
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.placement import place
from messi.data.sampling import Sampler, SamplingConfig
from messi.data.sealed_data import SealedData
from messi.data.splits import SplitConfig, make_split
from messi.engine.average_runs import average_runs
from messi.engine.averaging import running
from messi.engine.averaging.config import Averaging
from messi.engine.capture import Updater
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.evaluation.model import load
from messi.losses.ssi.loss import Discrepancy, Reduction, ssi_loss
from messi.losses.ssi.slots import SlotWeight
from messi.models.encoder import Encoder, EncoderConfig, untrained_names
from messi.models.tuning import parse_tuning

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("discrepancy", ["ot", "mmd"])
def test_the_loss_and_its_gradient_are_those_of_the_cpu(discrepancy: Discrepancy) -> None:
    torch.manual_seed(0)
    features, routing = torch.randn(6, 96, 384), torch.randn(96, 6).softmax(-1)
    labels, domains = torch.randint(7, (96,)), torch.arange(3).repeat_interleave(32)
    results = []
    for device in ("cpu", "cuda"):
        leaf = features.clone().to(device).requires_grad_()
        loss = ssi_loss(leaf, routing.to(device), labels.to(device), domains.to(device), discrepancy=discrepancy)
        loss.backward()
        assert leaf.grad is not None
        results.append((loss.cpu().detach(), leaf.grad.cpu()))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-5, atol=0)
    assert (results[0][1] - results[1][1]).norm() < 1e-4 * results[0][1].norm()


def test_augmented_images_are_those_of_the_cpu() -> None:
    """Each of the six operations may round differently once."""
    torch.manual_seed(0)
    coarse = torch.rand(16, 3, 6, 6) * 255
    images = Images.pack(torch.nn.functional.interpolate(coarse, (150, 200), mode="bilinear").to(torch.uint8))
    drawn = draw_parameters(images.sizes, torch.Generator().manual_seed(0))
    spec = InputSpec(shape=(3, 224, 224), mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255))
    cpu = prepare_augmented(images, drawn, spec)
    gpu = prepare_augmented(images.to(torch.device("cuda")), drawn.map(torch.Tensor.cuda), spec).cpu()
    assert (cpu - gpu).abs().mean() < 0.5
    assert (cpu - gpu).abs().max() <= 8


def test_a_batch_is_the_same_wherever_its_pixels_are_stored() -> None:
    """On the GPU, in pinned memory, or gathered ahead from the host: the batches have the same bits."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(20, 300, (60, 2), generator=generator).tolist()
    images = Images.pack([torch.randint(256, (3, h, w), dtype=torch.uint8, generator=generator) for h, w in sizes])
    domains, labels = torch.arange(60) % 3, torch.arange(60) % 5
    examples = Examples(images, labels, domains, tuple("abcde"), tuple("xyz"), "")
    split = make_split(
        examples, [2], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0
    )
    members = list(split.train.values())
    cuda = torch.device("cuda")
    places = [place(images, cuda), place(images, cuda, gpu_space=0), place(images, cuda, gpu_space=0, host_space=0)]
    assert [(p.pixels.is_cuda, p.pixels.is_pinned()) for p in places] == [(True, False), (False, True), (False, False)]
    batches, validation = [], []
    for placed in places:
        sampler = Sampler(
            config=SamplingConfig(sampling="replacement", batch_per_domain=8, domains_per_batch=None),
            members=members,
            labels=[labels[m] for m in members],
            seed=0,
        )
        sealed = SealedData(dataclasses.replace(examples, inputs=placed), split)
        spec = InputSpec(shape=(3, 64, 64), mean=(0.5,) * 3, std=(0.2,) * 3)
        loader = Loader(
            data=sealed,
            spec=spec,
            device=cuda,
            sampler=sampler,
            augmentation=AugmentationConfig(augmentation="domainbed", validation_augmentation=False),
        )
        batches.append([loader.batch(step) for step in (1, 2, 3, 70, 63, 64, 65)])
        validation.append(torch.cat([inputs for inputs, _ in loader.evaluation("source_val", 0, size=3)]))
    for other in (1, 2):
        assert torch.equal(validation[0], validation[other])
        for one, two in zip(batches[0], batches[other], strict=True):
            assert torch.equal(one.inputs, two.inputs)
            assert torch.equal(one.labels, two.labels)


def config(steps: int) -> RunConfig:
    data = RotatedColoredMNIST(environments=10, num_sources=5)
    settings = TrainingConfig(steps=steps, evaluate_every=steps, log_every=1, learning_rate=1e-3)
    encoder = EncoderConfig(backbone="small_cnn")
    return RunConfig(
        data=data, target=(data.test_domain,), algorithm=MESSI.Config(), encoder=encoder, training=settings
    )


def terms(path: Path) -> list[dict[str, float]]:
    return [record.terms for record in RunDir(path).read_records() if isinstance(record, TrainRecord)]


@pytest.mark.parametrize("backbone", ["small_cnn", "test_vit", "deit_tiny_patch16_224"])
def test_the_same_seed_gives_the_same_bits(tmp_path: Path, backbone: str) -> None:
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    same = dataclasses.replace(config(20), encoder=encoder)
    paths = [run(same, out=tmp_path / name, device="cuda").path for name in ("a", "b")]
    assert terms(paths[0]) == terms(paths[1])


def test_training_in_bfloat16_follows_training_on_the_cpu(tmp_path: Path) -> None:
    """bfloat16 keeps 8 bits of a product, so the first losses agree to about two digits."""
    cpu, gpu = (terms(run(config(5), out=tmp_path / device, device=device).path) for device in ("cpu", "cuda"))
    for one, other in zip(cpu, gpu, strict=True):
        assert other["cls"] == pytest.approx(one["cls"], rel=0.02)
        assert other["ssi"] == pytest.approx(one["ssi"], rel=0.1)


@pytest.mark.filterwarnings("ignore:The step of MESSI cannot be captured")
@pytest.mark.parametrize("backbone", ["small_cnn", "deit_tiny_patch16_224"])
def test_a_run_with_disabled_kernels_follows_the_one_with_kernels(tmp_path: Path, backbone: str) -> None:
    """Images are then prepared on the CPU, and torch and timm compute the rest in bfloat16.

    The learning rate is that of fine-tuning: with 1e-3 the loss of a transformer jumps up in the fourth step, which
    turns differences of 1e-3 into 5 %.
    """
    settings = dataclasses.replace(config(5).training, learning_rate=3e-5)
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    wanted = dataclasses.replace(config(5), encoder=encoder, training=settings)
    with gpu_kernels.disabled():
        without = terms(run(wanted, out=tmp_path / "without", device="cuda").path)
    for one, other in zip(without, terms(run(wanted, out=tmp_path / "with", device="cuda").path), strict=True):
        assert other["cls"] == pytest.approx(one["cls"], rel=5e-3)
        assert other["ssi"] == pytest.approx(one["ssi"], rel=0.05)


def test_a_run_on_an_old_gpu_trains_in_float32_and_predicts_in_float16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its eager steps follow those of the CPU closely, and so do its predictions.

    An old GPU has no TF32, which on this one rounds the products of convolutions to 11 bits.
    """
    cpu = run(config(5), out=tmp_path / "cpu", device="cpu")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert not torch.backends.cuda.matmul.allow_tf32
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    monkeypatch.setattr(hardware, "_has_bfloat16", lambda _: False)
    hardware.hardware_of.cache_clear()
    try:
        assert not gpu_kernels.available(torch.device("cuda"))
        old = run(config(5), out=tmp_path / "old", device="cuda")
    finally:
        hardware.hardware_of.cache_clear()
    assert_follows(terms(old.path), terms(cpu.path))
    assert old.target == pytest.approx(cpu.target, abs=0.01)


def test_a_run_in_float32_follows_the_cpu_captured_and_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TF32, torch's default for convolutions, the first balance term is 1e-3 away from the CPU's."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    wanted = dataclasses.replace(config(8), precision="float32")
    cpu, captured = (run(wanted, out=tmp_path / device, device=device) for device in ("cpu", "cuda"))
    eager = run(wanted, out=tmp_path / "eager", device="cuda", capture=False)
    assert terms(captured.path) == terms(eager.path)
    assert_follows(terms(captured.path), terms(cpu.path))


def assert_follows(found: list[dict[str, float]], wanted: list[dict[str, float]]) -> None:
    """Compare the terms of runs that differ in the rounding of float32.

    If every weight of a CPU run is changed by half a rounding, the first terms change by up to 2e-4 and those of later
    steps, which Adam makes from gradients near zero, by up to 1e-3 (cls), 4e-3 (ssi) and 3e-2 (bal).
    """
    assert found[0] == pytest.approx(wanted[0], rel=1e-3)
    for one, other in zip(found[1:], wanted[1:], strict=True):
        assert one["cls"] == pytest.approx(other["cls"], rel=3e-3)
        assert one["ssi"] == pytest.approx(other["ssi"], rel=1e-2)


def test_a_model_trained_on_the_gpu_predicts_the_same_on_the_cpu(tmp_path: Path) -> None:
    result = run(config(40), out=tmp_path / "run", device="cuda")
    examples = config(1).data.load()
    wanted = next(
        r for r in RunDir(result.path).read_records() if isinstance(r, EvaluationRecord) and r.role == "target"
    )
    assert isinstance(examples.inputs, Images)
    target = examples.inputs.stack()[examples.domains == examples.domain_names.index(wanted.domain)]
    labels = examples.labels[examples.domains == examples.domain_names.index(wanted.domain)]
    answers = load(result.path).predict(target).probabilities.argmax(-1)
    assert (answers == labels).double().mean() == pytest.approx(wanted.accuracy, abs=0.01)


def batches(number: int, size: int = 24) -> list[Batch]:
    """Return random batches with the shape of coloured digits, 3 domains and 4 classes."""
    generator = torch.Generator("cuda").manual_seed(0)
    domains = torch.arange(size, device="cuda") % 3
    return [
        Batch(
            torch.randn(size, 3, 28, 28, generator=generator, device="cuda"),
            torch.randint(4, (size,), generator=generator, device="cuda"),
            domains,
        )
        for _ in range(number)
    ]


def trained(kind: type[LossAlgorithm], given: list[Batch], *, capture: bool) -> tuple[Updater, list[torch.Tensor]]:
    """Train on the batches; return the updater and every parameter."""
    torch.manual_seed(0)
    task = Task(input_shape=(3, 28, 28), num_classes=4, num_domains=3)
    algorithm = kind(kind.Config(), task=task, encoder=EncoderConfig(backbone="small_cnn")).cuda()  # type: ignore[attr-defined]
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=1e-4))
    update = Updater(algorithm, stepper, torch.device("cuda"), capture=capture)
    with deterministic():
        for step, batch in enumerate(given):
            torch.manual_seed(step)
            update(batch)
    return update, [parameter.detach() for parameter in algorithm.parameters()]


class WithDropout(ERM):
    """Draws random numbers in its loss."""

    def loss(self, batch: Batch) -> LossTerms:
        dropped = torch.nn.functional.dropout(batch.inputs, 0.3)
        return super().loss(dataclasses.replace(batch, inputs=dropped))


class Waiting(ERM):
    """Waits for the device in its loss, which a graph cannot do."""

    def loss(self, batch: Batch) -> LossTerms:
        terms = super().loss(batch)
        return {"cls": terms["cls"] * (1.0 if terms["cls"].item() < 1e9 else 0.0)}


class WithHeadOptions(MESSI):
    """Counts its steps, moves a bias after them and drops units of experts, whose number is odd."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(MESSI.Config):
        """Every option of router, regularisers and experts."""

        diversity_reduction: PairReduction = "mean"
        regulariser_ramp: int = 6
        load_rate: float = 0.01
        expert_ratio: float = 0.29
        expert_dropout: float = 0.2
        normalised_experts: bool = True


class WithAlignmentOptions(MESSI):
    """Ramps its alignment and remembers examples; 30 places are no multiple of the 24 examples of a batch."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(MESSI.Config):
        """Every option of the alignment."""

        slot_weight: SlotWeight = "product"
        reduction: Reduction = "weighted"
        scale_free: bool = True
        debiased: bool = True
        ssi_weight: float = 1.0
        ssi_ramp: int = 6
        memory: int = 30


@pytest.mark.parametrize("kind", [ERM, MESSI, WithDropout, WithHeadOptions, WithAlignmentOptions])
def test_captured_and_eager_steps_give_the_same_bits(kind: type[LossAlgorithm]) -> None:
    given = batches(8)
    (eager, wanted), (captured, found) = (trained(kind, given, capture=capture) for capture in (False, True))
    assert (eager.captured, captured.captured) == (False, True)
    assert all(map(torch.equal, wanted, found))


@pytest.fixture
def group_of_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Return a group with NCCL that has one process."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}.items():
        monkeypatch.setenv(name, value)
    processes = join()
    assert processes
    yield processes
    leave()


def test_captured_steps_with_nccl_give_the_bits_of_steps_without(group_of_one: Processes) -> None:
    """The one process of a group gathers its features and reduces its gradients as one of many would."""
    results = []
    for processes in (None, group_of_one):
        with deterministic():
            torch.manual_seed(0)
            task = Task(input_shape=(3, 160, 160), num_classes=2, num_domains=3)
            encoder = EncoderConfig(backbone="test_vit", pretrained=False)
            algorithm = MESSI(MESSI.Config(), task=task, encoder=encoder).cuda().train()
            stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0), processes)
            update = Updater(algorithm, stepper, torch.device("cuda"), processes=processes)
            for step in range(1, 9):
                torch.manual_seed(step)
                inputs = torch.randn(24, 3, 160, 160, device="cuda")
                labels, domains = torch.arange(24, device="cuda") % 2, torch.arange(24, device="cuda") // 8
                update(Batch(inputs, labels, domains, step))
            assert update.captured
            results.append([parameter.detach().clone() for parameter in algorithm.parameters()])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("backbone", ["small_cnn", "resnet10t", "deit_tiny_patch16_224"])
@pytest.mark.parametrize("kind", [ERM, MESSI, DANN, Fish, MLDG])
def test_captured_and_eager_steps_give_the_same_bits_in_a_probe_and_after_it(
    kind: type[Algorithm], backbone: str
) -> None:
    """Each kind of step is captured after three eager ones; DANN has two kinds in the probe and two after it."""
    size = 28 if backbone == "small_cnn" else 224
    stream = torch.Generator("cuda").manual_seed(0)
    images = torch.randn(12, 3, size, size, generator=stream, device="cuda")
    labels = torch.randint(4, (12,), generator=stream, device="cuda")
    config = OptimizerConfig(learning_rate=1e-3, weight_decay=1e-4, layer_decay=0.7, probe_steps=12)
    states = []
    for capture in (False, True):
        torch.manual_seed(0)
        task = Task(input_shape=(3, size, size), num_classes=4, num_domains=3)
        encoder = EncoderConfig(backbone=backbone, pretrained=False)
        algorithm = kind(kind.Config(), task=task, encoder=encoder).cuda()  # type: ignore[attr-defined]
        start = {name: tensor.clone() for name, tensor in algorithm.state_dict().items()}
        inside = [
            f"{path}.{name}"
            for path, module in algorithm.named_modules()
            if isinstance(module, Encoder)
            for name in module.state_dict()
        ]
        update = Updater(algorithm, AdamStepper(algorithm, config), torch.device("cuda"), capture=capture)
        with deterministic():
            for step in range(1, 25):
                torch.manual_seed(step)
                order = torch.randperm(12, generator=torch.Generator().manual_seed(step)).cuda()
                update(Batch(images[order], labels[order], torch.arange(12, device="cuda") % 3, step=step))
                if step == 12:
                    assert update.captured is capture
                    assert all(torch.equal(algorithm.state_dict()[name], start[name]) for name in inside)
        states.append(algorithm.state_dict())
        assert not any(torch.equal(states[-1][name], start[name]) for name, _ in algorithm.named_parameters())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("tune", ["head", "last:3", "lora:4"])
@pytest.mark.parametrize("kind", [ERM, MESSI, Fish])
def test_captured_and_eager_steps_of_a_restricted_encoder_give_the_same_bits(kind: type[Algorithm], tune: str) -> None:
    stream = torch.Generator("cuda").manual_seed(0)
    labels = torch.randint(4, (12,), generator=stream, device="cuda")
    shape = (12, 192) if tune == "head" else (12, 3, 224, 224)
    inputs = torch.randn(shape, generator=stream, device="cuda")
    config = OptimizerConfig(learning_rate=1e-3, weight_decay=1e-4, layer_decay=0.7)
    states = []
    for capture in (False, True):
        torch.manual_seed(0)
        task = Task(input_shape=(3, 224, 224), num_classes=4, num_domains=3)
        encoder = EncoderConfig(backbone="deit_tiny_patch16_224", pretrained=False)
        algorithm = kind(kind.Config(), task=task, encoder=encoder)  # type: ignore[attr-defined]
        algorithm.restrict(parse_tuning(tune))
        algorithm.cuda()
        start, frozen = copied(algorithm), untrained_names(algorithm)
        update = Updater(algorithm, AdamStepper(algorithm, config), torch.device("cuda"), capture=capture)
        with deterministic():
            for step in range(1, 9):
                torch.manual_seed(step)
                update(Batch(inputs, labels, torch.arange(12, device="cuda") % 3, step=step))
        assert update.captured is capture
        states.append(algorithm.state_dict())
        assert all(torch.equal(states[-1][name], start[name]) for name in frozen)
        trained_names = {name for name, _ in algorithm.named_parameters()} - frozen
        assert not any(torch.equal(states[-1][name], start[name]) for name in trained_names)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def copied(algorithm: Algorithm) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in algorithm.state_dict().items()}


def test_the_fused_transformer_skips_frozen_blocks_with_the_same_gradients() -> None:
    torch.manual_seed(0)
    gradients = []
    for tune in ("full", "last:3"):
        torch.manual_seed(0)
        encoder = EncoderConfig(backbone="deit_tiny_patch16_224", pretrained=False).build((3, 224, 224))
        encoder.restrict(parse_tuning(tune))
        encoder.cuda()
        images = torch.randn(4, 3, 224, 224, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            encoder(images).square().sum().backward()
        gradients.append({name: p.grad for name, p in encoder.named_parameters() if p.grad is not None})
    assert 0 < len(gradients[1]) < len(gradients[0])
    for name, gradient in gradients[1].items():
        assert (gradient - gradients[0][name]).norm() <= 1e-2 * gradients[0][name].norm(), name


def test_merged_low_rank_changes_give_the_features_of_training() -> None:
    torch.manual_seed(0)
    encoder = EncoderConfig(backbone="deit_tiny_patch16_224", pretrained=False).build((3, 224, 224))
    encoder.restrict(parse_tuning("lora:4"))
    encoder.cuda().eval()
    for name, parameter in encoder.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(parameter, std=0.02)
    images = torch.randn(8, 3, 224, 224, device="cuda")
    with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16), gpu_kernels.disabled():
        before = encoder(images)
        encoder.merge()
        assert torch.equal(encoder(images), before)


def test_a_step_that_cannot_be_captured_stays_eager_and_is_reported() -> None:
    given = batches(8)
    with pytest.warns(UserWarning, match="Waiting cannot be captured and stays eager"):
        update, found = trained(Waiting, given, capture=True)
    assert not update.captured
    assert all(map(torch.equal, trained(ERM, given, capture=False)[1], found))


def test_a_batch_of_another_size_is_taken_eagerly() -> None:
    given = [*batches(6), *batches(1, size=12), *batches(2)]
    update, found = trained(MESSI, given, capture=True)
    assert update.captured
    assert all(map(torch.equal, trained(MESSI, given, capture=False)[1], found))


class Stop:
    """Interrupts a run after a step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def stepped(self, step: int) -> None:
        if step == self.at:
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """Steps of the two parts are captured at different places, and the run stops with an unwritten record."""
    training = dataclasses.replace(config(20).training, evaluate_every=7, log_every=3)
    wanted = dataclasses.replace(config(20), training=training)
    with pytest.raises(KeyboardInterrupt):
        run(wanted, out=tmp_path / "stopped", device="cuda", observers=[Stop(12)])
    paths = [run(wanted, out=tmp_path / name, device="cuda").path for name in ("stopped", "whole")]
    assert terms(paths[0]) == terms(paths[1])
    models = [load(path).algorithm.state_dict() for path in paths]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_runs_from_one_start_give_the_same_bits_captured_and_eager_and_their_average_is_the_mean(
    tmp_path: Path,
) -> None:
    run(config(5), out=tmp_path / "start", device="cuda")
    wanted = dataclasses.replace(config(10), start="start", seed=1, split_seed=0)
    paths = [run(wanted, out=tmp_path / str(c), device="cuda", capture=c).path for c in (True, False)]
    assert terms(paths[0]) == terms(paths[1])
    other = run(dataclasses.replace(wanted, seed=2), out=tmp_path / "other", device="cuda").path
    average = average_runs([paths[0], other], choice="uniform", out=tmp_path / "average", device="cuda").path
    one, two, mean = (load(path).algorithm.state_dict() for path in (paths[0], other, average))
    for name, tensor in mean.items():
        expected = ((one[name].double() + two[name].double()) / 2).to(tensor.dtype)
        assert torch.equal(tensor, expected if tensor.is_floating_point() else one[name]), name


@pytest.mark.parametrize("averaging", ["ma", "ema", "swad"])
def test_averages_of_eager_captured_and_interrupted_runs_have_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, averaging: Averaging
) -> None:
    monkeypatch.setattr(running, "BLOCK", 5)
    training = dataclasses.replace(
        config(20).training, evaluate_every=7, averaging=averaging, average_from=0.2, swad_optimum_patience=1
    )
    wanted = dataclasses.replace(config(20), training=training)
    with pytest.raises(KeyboardInterrupt):
        run(wanted, out=tmp_path / "stopped", device="cuda", observers=[Stop(12)])
    captures = {"stopped": True, "captured": True, "eager": False}
    paths = [run(wanted, out=tmp_path / name, device="cuda", capture=on).path for name, on in captures.items()]
    first, *others = [load(path).algorithm.state_dict() for path in paths]
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    "backbone", ["deit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2", "vit_base_patch16_clip_quickgelu_224"]
)
def test_fused_transformers_are_as_near_as_autocast_and_repeat_their_bits(backbone: str) -> None:
    """Errors are means over networks: those of equally accurate ones differ by up to 8 % in a single network."""
    squares = torch.zeros(2, 2, dtype=torch.float64)  # ours and theirs; features and gradients
    for seed in range(8):
        torch.manual_seed(seed)
        encoder = EncoderConfig(backbone=backbone, pretrained=False, image_size=224).build((3, 224, 224)).cuda()
        for name, parameter in encoder.named_parameters():
            if name.endswith("gamma"):
                torch.nn.init.ones_(parameter)
        images, above = torch.randn(8, 3, 224, 224, device="cuda"), torch.randn(8, encoder.width, device="cuda")
        exact = answer(encoder, encoder.network, images, above)
        with torch.autocast("cuda", torch.bfloat16):
            ours, again = (answer(encoder, encoder, images, above) for _ in range(2))
            with gpu_kernels.disabled():
                theirs = answer(encoder, encoder, images, above)
        assert all(map(torch.equal, ours, again))
        for side, found in enumerate((ours, theirs)):
            errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]
            squares[side] += torch.tensor([errors[0] ** 2, sum(e**2 for e in errors[1:]) / len(errors[1:])])
    assert (squares[0].sqrt() <= 1.1 * squares[1].sqrt()).all(), squares.sqrt()


def answer(encoder: Encoder, network: Any, images: torch.Tensor, above: torch.Tensor) -> list[torch.Tensor]:
    """Return the features and the gradients of all parameters of an encoder."""
    features = network(images).float()
    return [features.detach(), *torch.autograd.grad((features * above).sum(), list(encoder.parameters()))]
