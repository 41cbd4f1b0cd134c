"""MESSI: experts that align the class-conditional domain pairs routed to them.

    L = L_cls + l_ssi L_ssi + l_sp L_sp + l_bal L_bal + l_div L_div

L_ssi is in ``messi.losses.ssi``; the three regularisers are below the class.
Legend: M experts, B examples, R features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.common.base import AlgorithmConfig, LossAlgorithm, Stepper
from messi.core.batch import Batch, ExpertUse, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform, OneOf
from messi.core.cuda_streams import run_concurrently
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.losses.ssi.loss import Discrepancy, EpsilonScale, Reduction, require_debiasable, scale_free, ssi_loss
from messi.losses.ssi.recent import AlignedExamples, RecentExamples
from messi.losses.ssi.slots import Selector, SlotRule, SlotWeight, select
from messi.models.encoder import EncoderConfig
from messi.models.head import HeadOutput, MessiHead

Weight = Annotated[float, Bounds(minimum=0)]
Form = Literal["cosine", "frobenius"]
PairReduction = Literal["sum", "mean"]
_OF_TRANSPORT = ("epsilon", "epsilon_scale", "iterations")
_OF_ALIGNMENT = (
    *("ssi_ramp", "discrepancy", "selector", "slot_weight", "sharpness"),
    *("reduction", "scale_free", "debiased", "memory"),
)
"""Settings that only the invariance term reads, besides those of optimal transport."""


class MESSI(LossAlgorithm):
    """An encoder with the expert head, trained with the five loss terms of the paper."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The paper's values; docs/method.md explains how its open points are interpreted."""

        num_experts: Annotated[int, Bounds(minimum=1, maximum=10_000), OneOf((2, 4, 6, 8))] = 6
        """Number of experts M."""
        ssi_weight: Annotated[Weight, LogUniform(-3, -1)] = 0.01
        """Weight of the subset-conditioned invariance term."""
        ssi_ramp: Annotated[int, Bounds(minimum=0)] = 0
        """Number of steps in which that weight grows linearly from 0."""
        sparsity_weight: Annotated[Weight, LogUniform(-3, -1)] = 0.02
        """Weight of the routing entropy."""
        balance_weight: Annotated[Weight, LogUniform(-3, -1)] = 0.02
        """Weight of the distance of the mean expert load from uniform."""
        diversity_weight: Annotated[Weight, LogUniform(-3, -1)] = 0.02
        """Weight of the similarity between expert outputs."""
        discrepancy: Discrepancy = "ot"
        """Discrepancy between two cells: entropic optimal transport or squared MMD."""
        selector: Selector = "routing"
        """Which slots are aligned: those given by the routing, or one of the controls in docs/algorithms/messi.md."""
        slot_weight: SlotWeight = "sigmoid"
        """Weight of a slot: the paper's product of sigmoids, of routing masses, or of sigmoids centred at 1/M."""
        sharpness: Weight = 4.0
        """alpha: how strongly the routing mass determines the weight of a slot."""
        reduction: Reduction = "mean"
        """Mean or sum over the active slots, or their sum divided by the sum of their weights."""
        scale_free: bool = False
        """Whether expert outputs are centred and scaled over the batch before they are aligned."""
        debiased: bool = False
        """Whether OT is debiased (the Sinkhorn divergence), so that it is zero for equal distributions."""
        memory: Annotated[int, Bounds(minimum=0, maximum=8192)] = 0
        """Number of examples of earlier batches that are aligned together with the batch."""
        epsilon: Annotated[float, Bounds(above=0)] = 0.1
        """Entropic regularisation of OT."""
        epsilon_scale: EpsilonScale = "relative"
        """Whether epsilon is relative to the batch's mean cost or absolute."""
        iterations: Annotated[int, Bounds(minimum=1)] = 50
        """Sinkhorn iterations of OT."""
        diversity: Form = "cosine"
        """Similarity between experts: the cosine of the paper's text or the Frobenius norm of its equation."""
        diversity_reduction: PairReduction = "sum"
        """Sum or mean over the ordered pairs of experts."""
        balance_momentum: Annotated[float, Bounds(minimum=0, maximum=0.9999)] = 0.0
        """Decay of the moving average of the load that is balanced; 0 uses the batch only."""
        regulariser_ramp: Annotated[int, Bounds(minimum=0)] = 0
        """Number of steps in which the weights of sparsity, balance and diversity grow linearly from 0."""
        load_rate: Weight = 0.0
        """Change per step of a router bias that equalises the expert loads; 0 adds no bias."""
        expert_ratio: Annotated[float, Bounds(above=0, maximum=1e6)] = 4.0
        """Hidden units of an expert, as a multiple of the feature width."""
        expert_dropout: Annotated[float, Bounds(minimum=0, maximum=0.9)] = 0.0
        """Dropout between the layers of an expert."""
        normalised_experts: bool = False
        """Divide each expert output by its root mean square before it is mixed and aligned."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require_debiasable(self.discrepancy, debiased=self.debiased)

        def unused(self) -> dict[str, str]:
            """Return the settings of terms that are not computed, and of the other discrepancy and slot weights."""
            found: dict[str, str] = {}
            if self.discrepancy == "mmd":
                found |= dict.fromkeys(_OF_TRANSPORT, "discrepancy is 'mmd'")
            if self.slot_weight == "product":
                found["sharpness"] = "slot_weight is 'product'"
            if not self.ssi_weight:
                found |= dict.fromkeys((*_OF_ALIGNMENT, *_OF_TRANSPORT), "ssi_weight is 0")
            if not self.diversity_weight:
                found |= dict.fromkeys(("diversity", "diversity_reduction"), "diversity_weight is 0")
            if not (self.balance_weight or self.load_rate):
                found["balance_momentum"] = "balance_weight and load_rate are 0"
            if not (self.sparsity_weight or self.balance_weight or self.diversity_weight):
                found["regulariser_ramp"] = "the weights of the three regularisers are 0"
            return found

    whole_inputs: ClassVar[bool] = False
    load: Tensor
    steps_taken: Tensor | None
    """Number of steps so far; only with a ramp. On the device, because a captured step cannot read another number."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.encoder = encoder.build(task.input_shape)
        self.head = MessiHead(
            self.encoder.width,
            task.num_classes,
            config.num_experts,
            expert_ratio=config.expert_ratio,
            expert_dropout=config.expert_dropout,
            normalised=config.normalised_experts,
            residual=self.encoder.starts_linear,
            load_biased=config.load_rate > 0,
        )
        self.register_buffer("load", torch.full((config.num_experts,), 1 / config.num_experts))
        ramped = config.ssi_ramp or config.regulariser_ramp
        self.register_buffer("steps_taken", torch.zeros((), dtype=torch.long) if ramped else None)
        self.recent: RecentExamples | None = None
        if config.memory and config.ssi_weight:
            width = self.encoder.width
            self.recent = RecentExamples(config.memory, num_experts=config.num_experts, width=width)
        self._aligned: list[AlignedExamples] = []
        """The examples of each evaluation of the loss in the current step, detached."""

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Take one step on the loss, then remember its examples, move the load bias and count the step."""
        self._aligned.clear()
        terms = super().update(batch, stepper)
        if self.recent is not None:
            self.recent.add(self._aligned[0])  # sharpness-aware steps evaluate the loss again, at other weights
        self._aligned.clear()
        self.head.move_load_bias(self.load, self.config.load_rate)
        if self.steps_taken is not None:
            self.steps_taken.add_(1)
        return terms

    def loss(self, batch: Batch) -> LossTerms:
        """Return the five weighted terms; a term with the weight 0 is left out."""
        out = self.head(self.encoder(batch.inputs))
        config = self.config
        classification, invariance, routing, difference = run_concurrently(
            batch.labels.device,
            lambda: {"cls": domain_mean_cross_entropy(out.logits, batch.labels, batch.domains)},
            lambda: _term(
                "ssi", config.ssi_weight, lambda: self._invariance(out, batch), ramp=self._ramp(config.ssi_ramp)
            ),
            lambda: self._routing_terms(out.routing),
            lambda: self._regulariser("div", config.diversity_weight, lambda: self._diversity(out.experts)),
        )
        return {**classification, **invariance, **routing, **difference}

    def predict(self, inputs: Tensor) -> Prediction:
        """Return the logits of the routed mixture of experts, and the routing."""
        out = self.head(self.encoder(inputs))
        return Prediction(logits=out.logits, routing=out.routing)

    def inspect(self, inputs: Tensor) -> Inspection:
        """Return logits, features, routing and expert outputs."""
        encoded = self.encoder(inputs)
        out = self.head(encoded)
        experts = ExpertUse("head", routing=out.routing, outputs=out.experts)
        return Inspection(logits=out.logits, encoded=encoded, classified=out.mixture, experts=experts)

    @property
    def slot_rule(self) -> SlotRule:
        """How the alignment weights its slots."""
        return SlotRule(self.config.slot_weight, self.config.sharpness)

    def _invariance(self, out: HeadOutput, batch: Batch) -> Tensor:
        config = self.config
        features = scale_free(out.experts) if config.scale_free else out.experts
        examples = AlignedExamples(features, out.routing, batch.labels, batch.domains)
        if self.recent is not None:
            self._aligned.append(AlignedExamples(*(tensor.detach() for tensor in examples)))
            examples = self.recent.with_batch(examples)
        routing, labels = select(
            examples.routing,
            examples.labels,
            selector=config.selector,
            num_classes=self.task.num_classes,
            slot_weight=config.slot_weight,
        )
        return ssi_loss(
            examples.features,
            routing,
            labels,
            examples.domains,
            discrepancy=config.discrepancy,
            slot_weight=config.slot_weight,
            sharpness=config.sharpness,
            reduction=config.reduction,
            debiased=config.debiased,
            epsilon=config.epsilon,
            epsilon_scale=config.epsilon_scale,
            iterations=config.iterations,
        )

    def _routing_terms(self, routing: Tensor) -> LossTerms:
        config = self.config
        terms = self._regulariser("sp", config.sparsity_weight, lambda: sparsity(routing))
        if config.balance_weight or config.load_rate:
            load = self._current_load(routing)
            terms |= self._regulariser("bal", config.balance_weight, lambda: balance(load))
        return terms

    def _diversity(self, experts: Tensor) -> Tensor:
        return diversity(experts, form=self.config.diversity, reduction=self.config.diversity_reduction)

    def _current_load(self, routing: Tensor) -> Tensor:
        momentum = self.config.balance_momentum
        load = momentum * self.load + (1 - momentum) * routing.mean(0)
        if momentum or self.config.load_rate:
            self.load.copy_(load.detach())
        return load

    def _regulariser(self, name: str, weight: float, value: Callable[[], Tensor]) -> LossTerms:
        return _term(name, weight, value, ramp=self._ramp(self.config.regulariser_ramp))

    def _ramp(self, steps: int) -> Tensor | float:
        """Return the fraction of a weight that applies now: from 0 in the first step to 1 after ``steps`` steps."""
        return 1.0 if self.steps_taken is None or not steps else (self.steps_taken / steps).clamp(max=1)


def _term(name: str, weight: float, value: Callable[[], Tensor], *, ramp: Tensor | float = 1.0) -> LossTerms:
    return {name: weight * ramp * value()} if weight else {}


def sparsity(routing: Tensor) -> Tensor:
    """Return the mean entropy of the routing distributions: routing [B, M] -> scalar in [0, log M]."""
    routing = routing.float()
    # Not torch.special.entr: its gradient is infinite at 0, which a softmax does reach, and 0 times inf is NaN.
    return -(routing * routing.clamp_min(torch.finfo(routing.dtype).tiny).log()).sum(-1).mean()


def balance(load: Tensor) -> Tensor:
    """Return the squared distance of the mean expert load from uniform: load [M] -> scalar."""
    return (load.float() - 1 / len(load)).square().sum()


def diversity(features: Tensor, *, form: Form = "cosine", reduction: PairReduction = "sum") -> Tensor:
    """Return how similar the expert outputs are, over ordered pairs of experts: [M, B, R] -> scalar.

    ``"cosine"``, as in the paper's text: the squared batch mean of cos(h_m(x), h_n(x)).
    ``"frobenius"``, as in its equation: |H_m^T H_n / B|_F^2 with each H divided by its Frobenius norm. Its value is of
    the order of 1e-4, so its gradient is negligible at the paper's weight.
    """
    features = features.float()
    experts, batch, _ = features.shape
    if form == "cosine":
        unit = functional.normalize(features, dim=-1)
        similarity = torch.einsum("mbr,nbr->mn", unit, unit).div(batch).square()
    else:
        unit = features / (features.norm(dim=(1, 2), keepdim=True) + 1e-12)
        # |A^T B|_F^2 = <A A^T, B B^T>: [B, B] Gram matrices instead of [R, R] products for every pair.
        gram = unit @ unit.mT / batch
        similarity = torch.einsum("mbc,nbc->mn", gram, gram)
    total = similarity.sum() - similarity.diagonal().sum()
    return total if reduction == "sum" else total / max(experts * (experts - 1), 1)
