"""Which examples a batch contains: their frequencies and domains, always the same for a seed and a step."""

import itertools
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.data.datasets.folder import Folder
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.sampling import BLOCK, Sampler, Sampling, SamplingConfig
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.interrupt import Interrupted
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

KINDS: list[Sampling] = ["replacement", "epochs", "class_balanced"]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def sampler(
    sizes: list[int],
    kind: Sampling,
    *,
    per_domain: int = 8,
    few: int | None = None,
    seed: int = 0,
    labels: list[Tensor] | None = None,
) -> Sampler:
    """Return a sampler of domains whose examples are 1000 d, 1000 d + 1, and so on."""
    return Sampler(
        config=SamplingConfig(sampling=kind, batch_per_domain=per_domain, domains_per_batch=few),
        members=[1000 * domain + torch.arange(size) for domain, size in enumerate(sizes)],
        labels=labels or [torch.arange(size) % 3 for size in sizes],
        seed=seed,
    )


def blocks(drawer: Sampler, number: int) -> tuple[Tensor, Tensor]:
    """Return examples and domains of the first blocks: [number * BLOCK, B] each."""
    drawn = [drawer.block(index) for index in range(number)]
    return torch.cat([examples for examples, _ in drawn]), torch.cat([domains for _, domains in drawn])


def is_uniform(counts: Tensor) -> bool:
    """Return whether counts are plausible for independent, equally likely outcomes.

    Pearson's statistic then has mean k - 1 and variance 2 (k - 1) or less; 5 standard deviations are allowed.
    """
    expected = counts.sum() / len(counts)
    statistic = ((counts - expected) ** 2 / expected).sum()
    free = len(counts) - 1
    return bool(statistic < free + 5 * (2 * free) ** 0.5)


@EVERY_KIND
def test_every_step_has_the_same_number_of_examples_of_each_domain(kind: Sampling) -> None:
    examples, domains = blocks(sampler([50, 7, 200], kind), 3)
    assert examples.shape == domains.shape == (3 * BLOCK, 24)
    assert torch.equal(examples // 1000, domains)
    for step in domains:
        assert step.bincount(minlength=3).tolist() == [8, 8, 8]
    assert (examples % 1000 < torch.tensor([50, 7, 200])[domains]).all()


def test_with_replacement_every_example_is_equally_likely_and_may_come_twice_in_a_batch() -> None:
    examples, domains = blocks(sampler([50, 7, 200], "replacement"), 40)
    for domain, size in enumerate((50, 7, 200)):
        assert is_uniform((examples[domains == domain] % 1000).bincount(minlength=size).double())
    wide = examples[:, 16:]
    repeated = sum(len(step.unique()) < 8 for step in wide) / len(wide)
    # The birthday problem: 1 - 200 * 199 * ... * 193 / 200^8 = 0.132, with a standard error of 0.0067.
    assert abs(repeated - 0.132) < 5 * 0.0067


@pytest.mark.parametrize("size", [3, 8, 50, 509, 512, 700])
def test_an_epoch_has_every_example_once_wherever_batches_and_blocks_end(size: int) -> None:
    """A block has 512 examples of a domain; 3 are fewer than a batch and 700 more than a block."""
    examples, domains = blocks(sampler([size, 20], "epochs"), 6)
    row = examples[domains == 0]
    epochs = row[: len(row) // size * size].view(-1, size)
    assert len(epochs) >= 4
    for epoch in epochs:
        assert torch.equal(epoch.sort().values, torch.arange(size))
    assert len(row[len(epochs) * size :].unique()) == len(row) % size
    if size >= 50:
        assert len({tuple(epoch.tolist()) for epoch in epochs}) == len(epochs), "each epoch has a different order"


def test_domains_of_equal_size_have_different_orders() -> None:
    examples, domains = blocks(sampler([100, 100], "epochs"), 1)
    assert not torch.equal(examples[domains == 0], examples[domains == 1] - 1000)


def test_every_example_may_be_the_first_of_an_epoch() -> None:
    examples, _ = blocks(sampler([20], "epochs"), 80)
    first = examples.view(-1, 20)[:, 0]
    assert is_uniform(first.bincount(minlength=20).double())


def test_class_balanced_sampling_draws_the_classes_of_a_domain_equally_often() -> None:
    """270 of class 0, 27 of class 2 and 3 of class 5; only class 5 in the other domain."""
    uneven = torch.cat([torch.full((n,), label) for n, label in ((270, 0), (27, 2), (3, 5))])
    uneven = uneven[torch.randperm(300, generator=torch.Generator().manual_seed(0))]
    labels = [uneven, torch.full((40,), 5)]
    examples, domains = blocks(sampler([300, 40], "class_balanced", labels=labels), 40)
    drawn = examples[domains == 0]
    share = uneven[drawn].bincount(minlength=6).double() / len(drawn)
    error = (1 / 3 * 2 / 3 / len(drawn)) ** 0.5
    assert (share[[0, 2, 5]] - 1 / 3).abs().max() < 5 * error
    assert share[[1, 3, 4]].sum() == 0
    counts = drawn.bincount(minlength=300)
    for label in (0, 2, 5):
        assert is_uniform(counts[uneven == label].double()), "within a class all examples are equally likely"
    assert is_uniform((examples[domains == 1] - 1000).bincount(minlength=40).double())


@EVERY_KIND
def test_the_domains_of_a_step_are_distinct_and_equally_likely(kind: Sampling) -> None:
    examples, domains = blocks(sampler([30] * 10, kind, per_domain=4, few=3), 40)
    assert examples.shape == (40 * BLOCK, 12)
    assert torch.equal(examples // 1000, domains)
    groups = domains.view(-1, 3, 4)
    assert (groups == groups[..., :1]).all(), "the examples of a domain are consecutive"
    chosen = groups[..., 0]
    assert all(len(step.unique()) == 3 for step in chosen)
    assert is_uniform(chosen.flatten().bincount(minlength=10).double())
    pairs = itertools.combinations(range(10), 2)
    together = [((chosen == a).any(1) & (chosen == b).any(1)).sum().item() for a, b in pairs]
    # A step has 3 of the 45 pairs; the count of one has the variance of a draw with the chance 3 / 45.
    expected, steps = len(chosen) * 3 / 45, len(chosen)
    assert max(abs(count - expected) for count in together) < 5 * (steps * 3 / 45 * 42 / 45) ** 0.5


def test_in_epochs_the_drawn_domains_have_distinct_images_if_they_have_enough() -> None:
    """As WILDS's group sampler does."""
    examples, domains = blocks(sampler([4, 5, 30, 3], "epochs", per_domain=4, few=2), 10)
    groups = examples.view(-1, 4)
    large = groups[(groups[:, 0] < 3000)]
    assert all(len(group.unique()) == 4 for group in large)
    small = groups[groups[:, 0] >= 3000]
    assert len(small) > 100
    assert small.unique().tolist() == [3000, 3001, 3002]
    for domain, size in enumerate((4, 5, 30, 3)):
        counts = (examples[domains == domain] % 1000).bincount(minlength=size).double()
        assert is_uniform(counts)


@EVERY_KIND
@pytest.mark.parametrize("few", [None, 2])
def test_a_block_depends_only_on_seed_and_number(kind: Sampling, few: int | None) -> None:
    make: Callable[[int], Sampler] = lambda seed: sampler([50, 9, 200], kind, few=few, seed=seed)  # noqa: E731
    one = make(7)
    in_order = [one.block(number) for number in range(4)]
    torch.manual_seed(123)
    state = torch.get_rng_state()
    other = make(7)
    for number in (3, 0, 2, 1, 3):
        examples, domains = other.block(number)
        assert torch.equal(examples, in_order[number][0])
        assert torch.equal(domains, in_order[number][1])
    assert torch.equal(torch.get_rng_state(), state), "the global generator is not used"
    assert not torch.equal(make(8).block(3)[0], in_order[3][0])
    assert not torch.equal(in_order[2][0], in_order[3][0])


@pytest.mark.parametrize("few", [2, 3, 100])
def test_a_batch_of_as_many_domains_as_there_are_or_more_has_all(few: int) -> None:
    for sampling in ("epochs", "replacement"):
        limited, whole = (sampler([5, 5], sampling, few=number).block(3) for number in (few, None))
        assert all(torch.equal(one, other) for one, other in zip(limited, whole, strict=True))


class Stops:
    """Ends a run after a step: with an error, like a crash, or with a requested stop, which saves its state."""

    def __init__(self, step: int, how: str) -> None:
        self.step, self.how = step, how

    def stepped(self, step: int) -> None:
        if step == self.step and self.how == "crash":
            raise ZeroDivisionError
        if step == self.step and self.how == "signal":
            os.kill(os.getpid(), signal.SIGINT)

    def started(self, step: int, steps: int) -> None: ...

    def logged(self, step: int, terms: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, accuracy: float) -> None: ...

    def finished(self) -> None: ...


FILES = ("model.safetensors", "last.safetensors", "records.jsonl", "result.json")


def interrupted_and_uninterrupted(config: RunConfig, folder: Path, stops: list[Stops]) -> list[dict[str, bytes]]:
    """Return the files of a run that was interrupted several times, and of one that was not."""
    for stop in stops:
        with pytest.raises((ZeroDivisionError, Interrupted)):
            run(config, out=folder / "interrupted", device="cpu", observers=[stop])
    for name in ("interrupted", "uninterrupted"):
        run(config, out=folder / name, device="cpu")
    return [{file: (folder / name / file).read_bytes() for file in FILES} for name in ("interrupted", "uninterrupted")]


@EVERY_KIND
@pytest.mark.parametrize("few", [None, 2])
def test_a_resumed_run_draws_the_same_examples(kind: Sampling, few: int | None, tmp_path: Path) -> None:
    """It crashes in the second block of 64 steps, resumes in the first, and is stopped again in the second."""
    config = RunConfig(
        data=TwoSubsets(per_domain=60),
        target=("b2",),
        algorithm=ERM.Config(),
        training=TrainingConfig(
            steps=70, evaluate_every=20, log_every=7, batch_per_domain=8, sampling=kind, domains_per_batch=few
        ),
    )
    interrupted, uninterrupted = interrupted_and_uninterrupted(
        config, tmp_path, [Stops(66, "crash"), Stops(67, "signal")]
    )
    assert interrupted == uninterrupted


def test_a_resumed_run_on_augmented_images_ends_with_the_same_weights(
    make_folder: Callable[..., Path], tmp_path: Path
) -> None:
    config = RunConfig(
        data=Folder(path=str(make_folder(images=6))),
        target=("paint",),
        algorithm=MESSI.Config(num_experts=2),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        training=TrainingConfig(
            steps=9,
            evaluate_every=4,
            log_every=3,
            batch_per_domain=3,
            sampling="epochs",
            domains_per_batch=1,
            validation_augmentation=True,
        ),
    )
    assert config.resolved().training.augmentation == "domainbed"
    interrupted, uninterrupted = interrupted_and_uninterrupted(
        config, tmp_path, [Stops(2, "signal"), Stops(6, "crash")]
    )
    assert interrupted == uninterrupted
