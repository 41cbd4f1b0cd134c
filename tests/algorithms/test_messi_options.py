"""MESSI's options beyond the paper: router, regularisers, experts, and the ramp and the memory of the alignment."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from messi.algorithms.messi import MESSI
from messi.core import split_by_domain
from messi.core.batch import Batch, Task
from messi.core.rundir import RunDir
from messi.data.datasets.two_subsets import TwoSubsets
from messi.diagnostics.routing import dead_rate
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.engine.stepper import AdamStepper, Flatness, OptimizerConfig
from messi.evaluation.model import load
from messi.losses.ssi.loss import scale_free, ssi_loss
from messi.losses.ssi.slots import Selector
from messi.models.encoder import EncoderConfig

from .capturable import BackwardOnly, ForbidValueReads

EVERY_OPTION = MESSI.Config(
    diversity_reduction="mean",
    regulariser_ramp=5,
    load_rate=0.01,
    expert_ratio=0.7,
    expert_dropout=0.2,
    normalised_experts=True,
    ssi_ramp=3,
    memory=40,
    slot_weight="product",
    reduction="weighted",
    scale_free=True,
    debiased=True,
)


def build(config: MESSI.Config) -> tuple[MESSI, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=2, num_domains=2)
    algorithm = MESSI(config, task=task, encoder=EncoderConfig(backbone="mlp"))
    domains = torch.arange(2).repeat_interleave(8)
    return algorithm, Batch(inputs=torch.randn(16, 5), labels=torch.randint(2, (16,)), domains=domains)


def adam(algorithm: MESSI, flatness: Flatness = "none") -> AdamStepper:
    settings = OptimizerConfig(learning_rate=1e-2, weight_decay=0.1, flatness=flatness, sagm_alpha=0.001)
    return AdamStepper(algorithm, settings)


def test_a_model_without_options_has_the_state_of_the_paper() -> None:
    """Models saved before the options existed are still readable."""
    plain, _ = build(MESSI.Config())
    optional, _ = build(EVERY_OPTION)
    assert set(optional.state_dict()) - set(plain.state_dict()) == {"head.load_bias", "steps_taken"}


@pytest.mark.parametrize(("ramp", "terms"), [("regulariser_ramp", ("sp", "bal", "div")), ("ssi_ramp", ("ssi",))])
def test_a_ramp_scales_its_terms_only(ramp: str, terms: tuple[str, ...]) -> None:
    """No weight is changed, so the terms of all steps differ by the ramp alone: 0, 1/4, 2/4, 3/4, 1, 1."""
    (constant, batch), (ramped, _) = build(MESSI.Config()), build(dataclasses.replace(MESSI.Config(), **{ramp: 4}))  # type: ignore[arg-type]
    wanted = constant.loss(batch)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0, 1.0):
        found = ramped.update(batch, BackwardOnly())
        for name, value in found.items():
            expected = wanted[name] * (share if name in terms else 1)
            torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=0)
    assert torch.equal(ramped.loss(batch)[terms[0]], wanted[terms[0]])


@pytest.mark.parametrize("flatness", ["none", "sam", "sagm"])
@pytest.mark.parametrize(("balance_weight", "momentum"), [(0.02, 0.0), (0.0, 0.0), (0.0, 0.6)])
def test_the_load_bias_is_moved_once_a_step_and_by_nothing_else(
    flatness: Flatness, balance_weight: float, momentum: float
) -> None:
    """Neither by the optimizer and its weight decay nor by a second evaluation of the loss."""
    config = MESSI.Config(load_rate=0.03, balance_weight=balance_weight, balance_momentum=momentum, regulariser_ramp=3)
    algorithm, batch = build(config)
    stepper = adam(algorithm, flatness)
    bias, average = torch.zeros(6), torch.full((6,), 1 / 6)
    for step in range(1, 5):
        routing = algorithm.head(algorithm.encoder(batch.inputs)).routing.detach()
        average = momentum * average + (1 - momentum) * routing.mean(0)
        bias += 0.03 * (1 / 6 - average).sign()
        algorithm.update(batch, stepper)
        torch.testing.assert_close(algorithm.state_dict()["head.load_bias"], bias)
        assert algorithm.steps_taken == step


def test_dead_experts_are_revived_in_training_and_counted_by_the_biased_routing() -> None:
    plain = MESSI.Config(ssi_weight=0.0, sparsity_weight=0.0, balance_weight=0.0)
    rates = []
    for load_rate in (0.0, 0.05):
        algorithm, batch = build(dataclasses.replace(plain, load_rate=load_rate))
        with torch.no_grad():
            algorithm.head.router.bias.copy_(torch.tensor([9.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
        stepper = adam(algorithm)
        for _ in range(150):
            algorithm.update(batch, stepper)
        inspected, predicted = algorithm.inspect(batch.inputs).experts, algorithm.predict(batch.inputs).routing
        assert inspected is not None
        assert predicted is not None
        assert torch.equal(inspected.routing, predicted)
        rates.append(dead_rate(predicted.mean(0)))
    assert rates == [5 / 6, 0.0]


def test_no_term_depends_on_the_scale_of_normalised_experts() -> None:
    """So the alignment cannot be reduced by shrinking them."""
    algorithm, batch = build(MESSI.Config(normalised_experts=True))
    with torch.no_grad():
        for weight in (algorithm.head.experts.weight_out, algorithm.head.experts.bias_out):
            weight.mul_(100)
        before = algorithm.loss(batch)
        for weight in (algorithm.head.experts.weight_out, algorithm.head.experts.bias_out):
            weight.mul_(100)
        torch.testing.assert_close(algorithm.loss(batch), before)


def test_a_step_with_every_option_reads_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alignment is left out: on a CPU its slots are found in torch, which reads values."""
    monkeypatch.setattr(split_by_domain, "_number", lambda _: 2)
    algorithm, batch = build(dataclasses.replace(EVERY_OPTION, ssi_weight=0.0))
    addresses = [tensor.data_ptr() for tensor in (*algorithm.parameters(), *algorithm.buffers())]
    with ForbidValueReads():
        algorithm.update(batch, BackwardOnly())
    assert [tensor.data_ptr() for tensor in (*algorithm.parameters(), *algorithm.buffers())] == addresses


class StopAt:
    """Interrupts a run after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def stepped(self, step: int) -> None:
        if step == self.step:
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def test_an_interrupted_run_with_every_option_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """The records contain the loss of every step, which depends on the bias, the counter and the drawn units."""
    config = RunConfig(
        data=TwoSubsets(per_domain=40),
        algorithm=EVERY_OPTION,
        training=TrainingConfig(steps=8, evaluate_every=3, log_every=1, batch_per_domain=8, flatness="sam"),
    )
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    with pytest.raises(KeyboardInterrupt):
        run(config, out=stopped, device="cpu", observers=[StopAt(4)])
    assert RunDir(stopped).last.exists()
    models = [load(run(config, out=folder, device="cpu").path).algorithm.state_dict() for folder in (stopped, whole)]
    assert (stopped / "records.jsonl").read_bytes() == (whole / "records.jsonl").read_bytes()
    assert all(torch.equal(models[0][name], value) for name, value in models[1].items())
    assert models[1]["head.load_bias"].abs().max() > 0
    assert not any("recent" in name for name in models[1]), "a model file contains no training examples"


class TestMemory:
    """Of the alignment; batches of 16 examples."""

    CONFIG = MESSI.Config(memory=16, sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0)

    @staticmethod
    def other(batch: Batch, seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(2, (len(batch),), generator=generator)
        return Batch(torch.randn(batch.inputs.shape, generator=generator), labels, batch.domains)

    def test_the_first_step_is_that_without_a_memory(self) -> None:
        selectors: tuple[Selector, ...] = ("routing", "global", "random", "domain")
        for selector in selectors:
            (plain, batch), (remembering, _) = (
                build(dataclasses.replace(self.CONFIG, memory=memory, selector=selector)) for memory in (0, 16)
            )
            terms = []
            for algorithm in (plain, remembering):
                torch.manual_seed(1)
                terms.append(algorithm.loss(batch)["ssi"])
            torch.testing.assert_close(terms[0], terms[1])

    @pytest.mark.parametrize("scaled", [False, True])
    def test_the_second_step_aligns_both_batches_and_moves_only_its_own(self, scaled: bool) -> None:
        algorithm, first = build(dataclasses.replace(self.CONFIG, scale_free=scaled))
        second = self.other(first, 1)
        algorithm.update(first, BackwardOnly())
        algorithm.zero_grad()
        one, two = (algorithm.head(algorithm.encoder(batch.inputs)) for batch in (second, first))
        features = [scale_free(out.experts) if scaled else out.experts for out in (one, two)]
        expected = 0.01 * ssi_loss(
            torch.cat([features[0], features[1].detach()], 1),
            torch.cat([one.routing, two.routing]),
            torch.cat([second.labels, first.labels]),
            torch.cat([second.domains, first.domains]),
        )
        found = algorithm.loss(second)["ssi"]
        torch.testing.assert_close(found, expected)
        weight = algorithm.head.experts.weight_out
        torch.testing.assert_close(*(torch.autograd.grad(loss, weight)[0] for loss in (found, expected)))

    @pytest.mark.parametrize("flatness", ["none", "sam"])
    @pytest.mark.parametrize("size", [5, 16, 40])
    def test_it_holds_the_last_examples_as_the_weights_before_each_step_saw_them(
        self, size: int, flatness: Flatness
    ) -> None:
        algorithm, batch = build(dataclasses.replace(self.CONFIG, memory=size))
        stepper = adam(algorithm, flatness)
        addresses = [buffer.data_ptr() for buffer in algorithm.buffers()]
        seen: list[tuple[torch.Tensor, int, int]] = []
        for step in range(4):
            given = self.other(batch, step)
            outputs = algorithm.head(algorithm.encoder(given.inputs)).experts.detach().unbind(1)
            seen += zip(outputs, given.labels.tolist(), given.domains.tolist(), strict=True)
            algorithm.update(given, stepper)
        recent = algorithm.recent
        assert recent is not None
        held = zip(recent.features.unbind(1), recent.labels.tolist(), recent.domains.tolist(), strict=True)
        for (features, *names), (expected, *wanted) in zip(held, seen[-size:], strict=True):
            assert names == wanted
            torch.testing.assert_close(features, expected)
        assert [buffer.data_ptr() for buffer in algorithm.buffers()] == addresses

    def test_without_the_alignment_nothing_is_remembered(self) -> None:
        algorithm, _ = build(dataclasses.replace(self.CONFIG, ssi_weight=0.0))
        assert algorithm.recent is None
