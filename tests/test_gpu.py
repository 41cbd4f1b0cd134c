"""What must hold on a GPU; run by hand where there is one, since CI has none."""

import dataclasses
from pathlib import Path

import pytest
import torch

from messi.algorithms.messi import Messi
from messi.core.batch import InputSpec
from messi.core.records import EvaluationRecord, TrainRecord
from messi.core.rundir import RunDir
from messi.data.augment import draw_parameters
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMnist
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.placement import place
from messi.data.preprocess import prepare_augmented
from messi.data.sampling import Sampler
from messi.data.splits import make_split
from messi.data.vault import Vault
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.evaluation.model import load
from messi.losses.ssi import Discrepancy, ssi_loss
from messi.models.encoder import EncoderConfig

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
    """Each of the six steps may round the other way once."""
    torch.manual_seed(0)
    coarse = torch.rand(16, 3, 6, 6) * 255
    images = Images.pack(torch.nn.functional.interpolate(coarse, (150, 200), mode="bilinear").to(torch.uint8))
    drawn = draw_parameters(images.sizes, torch.Generator().manual_seed(0))
    spec = InputSpec(shape=(3, 224, 224), mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255))
    cpu = prepare_augmented(images, drawn, spec)
    gpu = prepare_augmented(images.to(torch.device("cuda")), drawn.map(torch.Tensor.cuda), spec).cpu()
    assert (cpu - gpu).abs().mean() < 0.5
    assert (cpu - gpu).abs().max() <= 8


def test_a_batch_is_the_same_wherever_its_pixels_lie() -> None:
    """On the GPU, in pinned memory, or gathered ahead from the host: bit for bit, and near to the CPU's."""
    stream = torch.Generator().manual_seed(0)
    sizes = torch.randint(20, 300, (60, 2), generator=stream).tolist()
    images = Images.pack([torch.randint(256, (3, h, w), dtype=torch.uint8, generator=stream) for h, w in sizes])
    domains, labels = torch.arange(60) % 3, torch.arange(60) % 5
    examples = Examples(images, labels, domains, tuple("abcde"), tuple("xyz"), "")
    split = make_split(examples, [2], kind="stratified", fraction=0.2, target_part="all", seed=0)
    members = list(split.train.values())
    cuda = torch.device("cuda")
    places = [place(images, cuda), place(images, cuda, gpu_room=0), place(images, cuda, gpu_room=0, host_room=0)]
    assert [(p.pixels.is_cuda, p.pixels.is_pinned()) for p in places] == [(True, False), (False, True), (False, False)]
    batches, validation = [], []
    for placed in places:
        sampler = Sampler(
            members=members,
            labels=[labels[m] for m in members],
            kind="replacement",
            per_domain=8,
            domains_per_batch=None,
            seed=0,
        )
        vault = Vault(dataclasses.replace(examples, inputs=placed), split)
        spec = InputSpec(shape=(3, 64, 64), mean=(0.5,) * 3, std=(0.2,) * 3)
        loader = Loader(vault=vault, spec=spec, device=cuda, sampler=sampler, augmentation="domainbed")
        batches.append([loader.batch(step) for step in (1, 2, 3, 70, 63, 64, 65)])
        validation.append(torch.cat([inputs for inputs, _ in loader.evaluation("source_val", 0, size=3)]))
    for other in (1, 2):
        assert torch.equal(validation[0], validation[other])
        for one, two in zip(batches[0], batches[other], strict=True):
            assert torch.equal(one.inputs, two.inputs)
            assert torch.equal(one.labels, two.labels)


def config(steps: int) -> RunConfig:
    data = RotatedColoredMnist(environments=10, num_sources=5)
    settings = TrainingConfig(steps=steps, evaluate_every=steps, log_every=1, learning_rate=1e-3)
    encoder = EncoderConfig(backbone="small_cnn")
    return RunConfig(
        data=data, target=(data.test_domain,), algorithm=Messi.Config(), encoder=encoder, training=settings
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
