"""Training problems with a known outcome: the example of the theorem, and digits with a misleading colour."""

import dataclasses
import math
import statistics
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from messi.algorithms.common.base import Algorithm, AlgorithmConfig
from messi.algorithms.coral import CORAL
from messi.algorithms.erm import ERM
from messi.algorithms.irm import IRM
from messi.algorithms.messi import MESSI
from messi.core.batch import Batch, Task
from messi.data.datasets.colored_mnist import ColoredMNIST
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.examples import Examples
from messi.data.images import Images
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import RunResult, run
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.losses.ssi.loss import ssi_loss
from messi.losses.ssi.slots import Selector, select
from messi.models.encoder import EncoderConfig
from messi.models.head import HeadOutput

SEEDS = range(3)
TASK = Task(input_shape=(3,), num_classes=2, num_domains=4)


class LinearExperts(nn.Module):
    """One matrix per expert: a map that cannot compute the label from both features and the style."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_experts, width, width) / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(num_experts, 1, width))

    def forward(self, features: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, features.expand(len(self.weight), -1, -1), self.weight)


class LinearMessi(MESSI):
    """MESSI with two linear experts, and a router that knows the subset from the style."""

    def __init__(self, config: MESSI.Config) -> None:
        super().__init__(config, task=TASK, encoder=EncoderConfig(backbone="identity"))
        self.head.experts = LinearExperts(3, 2)  # type: ignore[assignment]  # of the same form
        self.head.router.weight.data = torch.tensor([[0.0, 0.0, -5.0], [0.0, 0.0, 5.0]])
        self.head.router.requires_grad_(requires_grad=False)


class KnownSubsets(LinearMessi):
    """LinearMessi with each expert aligned only over the domains of its own subset, as in the theorem."""

    def _invariance(self, out: HeadOutput, batch: Batch) -> Tensor:
        terms = []
        for expert, inside in enumerate((batch.domains < 2, batch.domains >= 2)):
            labels, domains = batch.labels[inside], batch.domains[inside]
            everywhere, _ = select(out.routing[inside, :1], labels, selector="global", num_classes=2)
            terms.append(ssi_loss(out.experts[expert, inside][None], everywhere, labels, domains, discrepancy="mmd"))
        return torch.stack(terms).mean()


def train(algorithm: Algorithm, *, seed: int, steps: int = 400, learning_rate: float = 3e-2) -> Algorithm:
    """Train on batches of 16 examples from each of the four domains.

    Weight decay makes a strong alignment effective: without it, features shrink and the classifier grows.
    """
    data, generator = TwoSubsets().load(), torch.Generator().manual_seed(seed)
    assert isinstance(data.inputs, Tensor)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=learning_rate, weight_decay=1e-2))
    for step in range(1, steps + 1):
        chosen = (400 * torch.arange(4)[:, None] + torch.randint(400, (4, 16), generator=generator)).flatten()
        algorithm.update(Batch(data.inputs[chosen], data.labels[chosen], data.domains[chosen], step), stepper)
    return algorithm


def accuracies(algorithm: Algorithm) -> tuple[float, float]:
    """Return the accuracy on fresh examples of the sources, and on new domains with three times the noise."""
    data = TwoSubsets(data_seed=1, per_domain=1000).load()
    assert isinstance(data.inputs, Tensor)
    new = data.inputs.clone()
    new[data.domains < 2, 1] *= 3
    new[data.domains >= 2, 0] *= 3
    with torch.no_grad():
        right = [algorithm.predict(inputs).logits.argmax(1) == data.labels for inputs in (data.inputs, new)]
    return float(right[0].double().mean()), float(right[1].double().mean())


def linear_runs(method: type[LinearMessi], selector: Selector) -> list[tuple[float, float]]:
    """Train with a strong alignment; return the accuracies of every seed."""
    settings = MESSI.Config(num_experts=2, ssi_weight=100, selector=selector, discrepancy="mmd", diversity_weight=0.0)
    results = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        results.append(accuracies(train(method(settings), seed=seed)))
    return results


def test_strong_alignment_loses_information_unless_it_is_within_subsets() -> None:
    """Seeds 0 to 7: with known subsets nothing is lost; aligning all domains leaves 0.49 to 0.53, which is chance.

    The paper's weights give 0.66 to 0.82 although the router knows the subsets: a pair across subsets has half the
    weight of a pair within one, never zero. Aligning all domains with the same mean weight, 53, gave 0.69 to 0.73
    (seeds 0 to 2).
    """
    known, everything = linear_runs(KnownSubsets, "global"), linear_runs(LinearMessi, "global")
    assert min(min(sources, new) for sources, new in known) > 0.99
    assert max(sources for sources, _ in everything) < 0.56
    assert all(0.6 < sources < 0.9 for sources, _ in linear_runs(LinearMessi, "routing"))


@pytest.mark.parametrize("certainty", [0.0, 1.0, 50.0])
def test_alignment_by_routing_is_at_least_a_quarter_of_the_alignment_of_all(certainty: float) -> None:
    """Regardless of the router: its masses are not negative, so no sigmoid of them is below 1/2."""
    torch.manual_seed(0)
    experts, labels, domains = torch.randn(2, 64, 3), torch.arange(64) % 2, torch.arange(64) // 16
    routing = (certainty * torch.randn(64, 2)).softmax(-1)
    everywhere, _ = select(routing, labels, selector="global", num_classes=2)
    routed, everything = (float(ssi_loss(experts, weights, labels, domains)) for weights in (routing, everywhere))
    assert everything / 4 < routed < everything


def test_coral_keeps_everything_with_a_large_weight_and_nothing_with_a_huge_one() -> None:
    """An MLP could compute the label from invariant features, but a huge weight makes its features vanish first."""
    for gamma, low, high in ((100.0, 0.98, 1.0), (1e4, 0.4, 0.6)):
        for seed in range(2):
            torch.manual_seed(seed)
            coral = CORAL(CORAL.Config(gamma=gamma), task=TASK, encoder=EncoderConfig(backbone="mlp"))
            sources, _ = accuracies(train(coral, seed=seed, learning_rate=1e-2))
            assert low < sources <= high


def on_digits(algorithm: AlgorithmConfig, examples: Examples, out: Path, seed: int) -> RunResult:
    settings = TrainingConfig(
        steps=150, evaluate_every=150, batch_per_domain=256, learning_rate=1e-3, weight_decay=1e-3
    )
    chosen = RunConfig(
        data=ColoredMNIST(),
        target=("-90%",),
        algorithm=algorithm,
        encoder=EncoderConfig(backbone="mlp"),
        training=settings,
        seed=seed,
    )
    return run(
        chosen, out=out / f"{algorithm.name}-{examples.fingerprint[:4]}-{seed}", device="cpu", load=lambda: examples
    )


def without_colour(examples: Examples) -> Examples:
    """Return the same digits with both channels alike."""
    assert isinstance(examples.inputs, Images)
    grey = examples.inputs.stack().amax(1, keepdim=True).expand(-1, 2, -1, -1)
    return dataclasses.replace(examples, inputs=Images.pack(grey), fingerprint="grey")


def test_on_colored_mnist_erm_follows_the_colour_and_others_do_not(tmp_path: Path) -> None:
    """Colour is right in 90 %, 80 % and 10 % of the three domains, shape in 75 % of each.

    For seeds 0 to 3, ERM scored 12 to
    15 % on the target and 81 to 85 % on the sources; trained on grey images, it scored 64 to 67 % on the target. IRM
    scored 44 to 67 %: it ignores the colour, but learns little about the shape from 2,700 digits.
    """
    coloured = ColoredMNIST().load()
    grey = without_colour(coloured)
    for seed in range(2):
        erm = on_digits(ERM.Config(), coloured, tmp_path, seed)
        blind = on_digits(ERM.Config(), grey, tmp_path, seed)
        irm = on_digits(IRM.Config(penalty_weight=1e4, anneal_steps=50), coloured, tmp_path, seed)
        assert statistics.fmean(erm.source_val.values()) > 0.8
        assert erm.target["-90%"] < 0.2
        assert blind.target["-90%"] > 0.6
        assert irm.target["-90%"] > erm.target["-90%"] + 0.2
