"""Batches: images with their labels, the same for a step at any time and in any order of requests."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from messi.core.batch import Batch, InputSpec
from messi.core.errors import MessiError
from messi.core.records import Role
from messi.data.augment import Augmentation, AugmentationConfig
from messi.data.datasets.folder import Folder
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.placement import place
from messi.data.preprocess import prepare
from messi.data.sampling import BLOCK, Sampler, Sampling, SamplingConfig
from messi.data.sealed_data import SealedData, TargetSealedError
from messi.data.splits import Split, SplitConfig, make_split
from messi.engine.build import placed

CPU = torch.device("cpu")
SPEC = InputSpec(shape=(3, 6, 6), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
DOMAINS, CLASSES, EACH = 4, 3, 10
TARGET = 1
"""A domain in the middle: source domains and domains then have different numbers."""


def coded(*, even: bool = True) -> Examples:
    """Return images of one colour each, (domain, class, number) times 20, of the encoder's size or of many sizes."""
    images, labels, domains = [], [], []
    for domain in range(DOMAINS):
        for number in range(EACH * CLASSES):
            label = number % CLASSES
            size = (6, 6) if even else (5 + number % 4, 4 + number % 7)
            color = torch.tensor([20 * domain, 20 * label, 8 * number], dtype=torch.uint8)
            images.append(color[:, None, None].expand(3, *size))
            labels.append(label)
            domains.append(domain)
    names = tuple(f"domain {d}" for d in range(DOMAINS))
    return Examples(
        Images.pack(images), torch.tensor(labels), torch.tensor(domains), ("a", "b", "c"), names, fingerprint=""
    )


def split_of(examples: Examples) -> Split:
    return make_split(
        examples, [TARGET], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0
    )


def make_loader(
    examples: Examples,
    *,
    seed: int = 0,
    kind: Sampling = "replacement",
    few: int | None = None,
    augmentation: Augmentation = "none",
    validation_augmentation: bool = False,
    device: torch.device = CPU,
    part: tuple[int, int] = (0, 1),
) -> Loader:
    split = split_of(examples)
    members = list(split.train.values())
    sampler = Sampler(
        config=SamplingConfig(sampling=kind, batch_per_domain=5, domains_per_batch=few),
        members=members,
        labels=[examples.labels[indices] for indices in members],
        seed=seed,
    )
    return Loader(
        data=SealedData(examples, split),
        spec=SPEC,
        device=device,
        seed=seed,
        sampler=sampler,
        augmentation=AugmentationConfig(augmentation=augmentation, validation_augmentation=validation_augmentation),
        part=part,
    )


def colors(inputs: Tensor) -> Tensor:
    """Return the colour of images that are of one colour each."""
    flat = (inputs * 255).round().long().flatten(2)
    assert torch.equal(flat.amin(-1), flat.amax(-1))
    return flat[..., 0]


@pytest.mark.parametrize("even", [True, False], ids=["one size", "many sizes"])
@pytest.mark.parametrize("few", [None, 2])
@pytest.mark.parametrize("kind", ["replacement", "epochs", "class_balanced"])
def test_labels_and_domains_of_a_batch_belong_to_its_images(kind: Sampling, few: int | None, even: bool) -> None:
    loader = make_loader(coded(even=even), kind=kind, few=few)
    sources = torch.tensor([d for d in range(DOMAINS) if d != TARGET])
    for step in (0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5):
        batch = loader.batch(step)
        domain, label, _ = colors(batch.inputs).T
        assert batch.inputs.shape == (5 * (few or 3), 3, 6, 6)
        assert torch.equal(domain // 20, sources[batch.domains])
        assert torch.equal(label // 20, batch.labels)


def equal(first: Batch, second: Batch) -> bool:
    names = ("inputs", "labels", "domains")
    return first.step == second.step and all(torch.equal(getattr(first, n), getattr(second, n)) for n in names)


@pytest.mark.parametrize("augmentation", ["none", "domainbed"])
def test_the_batch_of_a_step_is_the_same_in_any_order_and_in_a_new_loader(augmentation: Augmentation) -> None:
    def make(seed: int = 0) -> Loader:
        return make_loader(coded(even=False), augmentation=augmentation, seed=seed)

    loader = make()
    steps = [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK]
    in_order = {step: loader.batch(step) for step in steps}
    for step in (*reversed(steps), 1, 1, BLOCK, 0, 2 * BLOCK):
        assert equal(loader.batch(step), in_order[step])
    for step in steps:
        assert equal(make().batch(step), in_order[step]), "as in a resumed run"
    assert not equal(in_order[0], in_order[1])
    assert not equal(make(seed=1).batch(0), in_order[0])


@pytest.mark.parametrize("augmentation", ["none", "domainbed"])
def test_the_parts_of_several_processes_together_are_the_batch(augmentation: Augmentation) -> None:
    whole, *parts = (
        make_loader(coded(even=False), augmentation=augmentation, part=part)
        for part in ((0, 1), (0, 3), (1, 3), (2, 3))
    )
    for step in (1, 2, BLOCK + 1):
        batch, shares = whole.batch(step), [part.batch(step) for part in parts]
        assert torch.equal(batch.inputs, torch.cat([share.inputs for share in shares]))
        assert all(torch.equal(batch.labels, share.labels) for share in shares)
        assert all(torch.equal(batch.domains, share.domains) for share in shares)
    assert equal(make_loader(coded(), part=(1, 2)).batch(1), make_loader(coded()).batch(1)), (
        "15 images cannot be halved"
    )


def test_the_seed_changes_how_the_same_images_are_augmented() -> None:
    examples = coded(even=False)
    first, second = (make_loader(examples, augmentation="domainbed", seed=seed) for seed in (0, 1))
    second._sampler = first._sampler
    assert torch.equal(first.batch(0).labels, second.batch(0).labels)
    assert not torch.equal(first.batch(0).inputs, second.batch(0).inputs)


def test_an_evaluation_between_steps_changes_no_batch() -> None:
    loader, undisturbed = (make_loader(coded(), augmentation="domainbed", validation_augmentation=True) for _ in "ab")
    for step in range(5):
        assert equal(loader.batch(step), undisturbed.batch(step))
        list(loader.evaluation("source_val", 0, size=256))


def features(kind: Sampling, *, number: int, per_domain: int) -> tuple[Examples, Sampler, Loader]:
    """Return three domains of features to train on, and their sampler."""
    examples = TwoSubsets(per_domain=number).load()
    split = make_split(
        examples, [3], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0
    )
    members = list(split.train.values())
    sampler = Sampler(
        config=SamplingConfig(sampling=kind, batch_per_domain=per_domain, domains_per_batch=None),
        members=members,
        labels=members,
        seed=0,
    )
    return (
        examples,
        sampler,
        Loader(data=SealedData(examples, split), spec=InputSpec(shape=(3,)), device=CPU, sampler=sampler),
    )


def test_a_step_can_be_drawn_without_the_steps_before_it() -> None:
    """Features are drawn by the same sampler as images."""
    examples, sampler, loader = features("replacement", number=30, per_domain=4)
    for step in (70, 3):
        drawn, domains = (values[(step - 1) % BLOCK] for values in sampler.block((step - 1) // BLOCK))
        batch = loader.batch(step)
        assert isinstance(examples.inputs, Tensor)
        assert torch.equal(batch.inputs, examples.inputs[drawn])
        assert torch.equal(batch.labels, examples.labels[drawn])
        assert torch.equal(batch.domains, domains)


def evaluated(loader: Loader, role: Role, domain: int, size: int = 7) -> tuple[Tensor, Tensor]:
    inputs, labels = zip(*loader.evaluation(role, domain, size=size), strict=True)
    assert [len(chunk) for chunk in inputs[:-1]] == [size] * (len(inputs) - 1)
    return torch.cat(inputs), torch.cat(labels)


@pytest.mark.parametrize("even", [True, False], ids=["one size", "many sizes"])
def test_an_evaluation_reads_a_domain_once_in_order(even: bool) -> None:
    examples = coded(even=even)
    split, loader = split_of(examples), make_loader(examples, augmentation="domainbed")
    loader.data.open_target()
    roles: tuple[Role, ...] = ("train", "source_val", "target")
    for role in roles:
        for domain, indices in split.of(role).items():
            inputs, labels = evaluated(loader, role, domain)
            expected = torch.stack([examples.inputs[int(index)][:, 0, 0] for index in indices]).long()
            assert torch.equal(colors(inputs), expected)
            assert torch.equal(labels, examples.labels[indices])


def test_the_target_cannot_be_evaluated_before_it_is_opened() -> None:
    with pytest.raises(TargetSealedError):
        next(make_loader(coded()).evaluation("target", TARGET, size=256))


def test_augmented_validation_is_repeatable_and_only_for_source_validation_data() -> None:
    examples = coded(even=False)
    plain = make_loader(examples, augmentation="domainbed")
    augmented = make_loader(examples, augmentation="domainbed", validation_augmentation=True)
    other_seed = make_loader(examples, augmentation="domainbed", validation_augmentation=True, seed=1)
    for loader in (plain, augmented, other_seed):
        loader.data.open_target()
    inputs, labels = evaluated(augmented, "source_val", 0)
    augmented.batch(3)
    assert torch.equal(evaluated(augmented, "source_val", 0)[0], inputs)
    assert torch.equal(labels, evaluated(plain, "source_val", 0)[1])
    assert not torch.equal(inputs, evaluated(plain, "source_val", 0)[0])
    assert not torch.equal(inputs, evaluated(other_seed, "source_val", 0)[0])
    for role, domain in (("target", TARGET), ("train", 0)):
        assert torch.equal(
            evaluated(augmented, role, domain)[0],  # type: ignore[arg-type]  # two of the roles
            evaluated(plain, role, domain)[0],  # type: ignore[arg-type]
        )


def test_validation_images_are_augmented_only_if_training_images_are() -> None:
    examples = coded()
    plain, loader = make_loader(examples), make_loader(examples, validation_augmentation=True)
    assert torch.equal(evaluated(plain, "source_val", 0)[0], evaluated(loader, "source_val", 0)[0])


@pytest.mark.parametrize("shape", [(3,), (1, 28, 28), (2, 28, 28)])
def test_the_augmentation_of_colour_images_is_refused_for_other_inputs(shape: tuple[int, ...]) -> None:
    examples = TwoSubsets(per_domain=30).load()
    sealed = SealedData(examples, split_of(examples))
    with pytest.raises(MessiError, match="'domainbed' requires colour images; choose --augmentation none"):
        Loader(
            data=sealed,
            spec=InputSpec(shape=shape),
            device=CPU,
            augmentation=AugmentationConfig(augmentation="domainbed", validation_augmentation=False),
        )


def test_a_loader_without_a_sampler_makes_no_batches() -> None:
    examples = coded()
    loader = Loader(data=SealedData(examples, split_of(examples)), spec=SPEC, device=CPU)
    assert len(evaluated(loader, "source_val", 0)[0]) == 6
    with pytest.raises(MessiError, match="no sampler"):
        loader.batch(0)


def test_images_are_normalised_by_the_mean_and_deviation_of_the_spec() -> None:
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 4, 5)
    spec = InputSpec(shape=(3, 4, 5), mean=(0.5, 0.2, 0.0), std=(0.5, 0.25, 2.0))
    ready = prepare(Images.pack(pixels), spec)
    assert torch.allclose(ready[0, :, 0, 0], torch.tensor([-1.0, 0.0, 0.5]), atol=1e-6)
    assert ready.shape == (1, 3, 4, 5)


def test_images_are_resized_without_a_crop() -> None:
    """A left third that is white stays the left third; the filter blurs its edge by less than a half."""
    image = torch.zeros(3, 9, 30, dtype=torch.uint8)
    image[:, :, :10] = 255
    ready = prepare(Images.pack([image]), SPEC)[0]
    assert torch.equal(ready.round(), torch.tensor([1.0, 1, 0, 0, 0, 0]).expand(3, 6, 6))


def test_on_a_cpu_images_stay_in_their_memory_mapped_file(
    make_folder: Callable[..., Path],
) -> None:
    examples = Folder(path=str(make_folder(images=3))).load()
    assert isinstance(examples.inputs, Images)
    there = placed(examples, CPU).inputs
    assert isinstance(there, Images)
    assert there.pixels.data_ptr() == examples.inputs.pixels.data_ptr()
    assert place(examples.inputs, CPU) is examples.inputs
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    spans = [line.split()[0].split("-") for line in maps if line.endswith("/pixels")]
    address = there.pixels.data_ptr()
    assert any(int(start, 16) <= address < int(end, 16) for start, end in spans)


@pytest.mark.parametrize("augmentation", ["none", "domainbed"])
def test_for_a_device_without_kernels_the_cpu_prepares_the_same_images(
    augmentation: Augmentation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The meta device stands for an old or foreign GPU: what is moved to it is what a CPU would have used."""
    moved: list[Tensor] = []

    def to_device(tensor: Tensor, device: torch.device) -> Tensor:
        if device == foreign:
            moved.append(tensor)
        return tensor.to(device)

    examples, foreign = coded(even=False), torch.device("meta")
    assert isinstance(examples.inputs, Images)
    assert place(examples.inputs, foreign) is examples.inputs
    host, loader = (
        make_loader(examples, augmentation=augmentation, validation_augmentation=True, device=device)
        for device in (CPU, foreign)
    )
    monkeypatch.setattr("messi.data.loader.to_device", to_device)
    for step in (1, 2, BLOCK + 1):
        batch, expected = loader.batch(step), host.batch(step)
        assert {batch.inputs.device, batch.labels.device, batch.domains.device} == {foreign}
        assert any(torch.equal(tensor, expected.inputs) for tensor in moved)
        moved.clear()
    inputs, labels = next(iter(loader.evaluation("source_val", 0, size=7)))
    assert (inputs.device, labels.device) == (foreign, foreign)
    assert any(torch.equal(tensor, next(host.evaluation("source_val", 0, size=7))[0]) for tensor in moved)


def test_the_first_epoch_is_the_first_steps() -> None:
    """Steps count from 1: four steps of 8 read each of 32 examples once."""
    examples, sampler, loader = features("epochs", number=40, per_domain=8)
    seen = torch.cat([loader.batch(step).inputs for step in (1, 2, 3, 4)])
    assert isinstance(examples.inputs, Tensor)
    assert torch.equal(seen.unique(dim=0), examples.inputs[torch.cat(list(sampler.members))].unique(dim=0))
    assert [len(indices) for indices in sampler.members] == [32, 32, 32]
