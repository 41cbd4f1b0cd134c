"""Domain probe: whether the domain can be recognised from the features of a class.

For each class, a logistic regression is fitted on half of the examples and tested on the other half. All domains
have the same weight, regardless of their size: the fit is weighted, and the accuracy is the mean of the per-domain
recall. The
accuracy of any guess that ignores the features is therefore 1 / K for a class that occurs in K domains. With accuracy
over examples, always guessing the largest domain would score its share, a different number for each data set.
Legend: B examples, R features, K domains.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from messi.core import seeding
from messi.diagnostics.recording import Recording
from messi.diagnostics.sampling import paired_sample, spaced

SMALLEST = 4
"""Examples of a class that a domain needs to be included: two for training and two for testing."""
PROBED_CLASSES = 60
"""Maximum number of probed classes, evenly spaced if there are more: each takes about 30 ms."""
_ROUNDS = 100


@dataclass(frozen=True)
class Probe:
    """Means over the classes of which at least two domains have enough examples."""

    accuracy: float
    chance: float
    """Accuracy of guessing."""


def domain_probe(features: Tensor, labels: Tensor, domains: Tensor, *, generator: torch.Generator) -> Probe | None:
    """Return how well the domain is recognised within a class; None if no class has two domains with enough examples.

    Shapes: features [B, R], labels [B], domains [B]. ``generator`` draws the halves.
    """
    features, results = features.double(), []
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().squeeze(1)
        names, counts = domains[rows].unique(return_counts=True)
        names = names[counts >= SMALLEST]
        if len(names) > 1:
            halves = [_halves(rows[domains[rows] == name], generator) for name in names.tolist()]
            results.append((_accuracy(features, halves), 1 / len(names)))
    if not results:
        return None
    accuracies, chances = zip(*results, strict=True)
    return Probe(accuracy=sum(accuracies) / len(results), chance=sum(chances) / len(results))


def _halves(rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    shuffled = rows[torch.randperm(len(rows), generator=generator)]
    return shuffled[: len(rows) // 2], shuffled[len(rows) // 2 :]


def _accuracy(features: Tensor, halves: list[tuple[Tensor, Tensor]]) -> float:
    """Fit the first half of every domain; return the mean recall on the second halves."""
    known = features[torch.cat([first for first, _ in halves])]
    classes = torch.cat([torch.full((len(first),), k) for k, (first, _) in enumerate(halves)])
    mean, scale = known.mean(0), known.std(0)
    scale = torch.where(scale > 0, scale, 1)
    weights, bias = fit_logistic((known - mean) / scale, classes, num_classes=len(halves))
    found = [
        (((features[second] - mean) / scale @ weights + bias).argmax(-1) == k).double().mean()
        for k, (_, second) in enumerate(halves)
    ]
    return float(torch.stack(found).mean())


def fit_logistic(inputs: Tensor, classes: Tensor, *, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return weights [R, K] and bias [K] that minimise  sum_i w_i cross-entropy_i + |weights|^2 / 2.

    The w_i give all classes the same weight and have the mean 1; inputs [B, R] float64, classes [B].
    """
    # The optimal weights are linear combinations of inputs, so the span of the inputs suffices.
    directions = torch.linalg.svd(inputs, full_matrices=False).Vh.mT
    points = inputs @ directions
    balance = len(classes) / (num_classes * torch.bincount(classes, minlength=num_classes).double())
    weights = torch.zeros(points.shape[1], num_classes, dtype=inputs.dtype, requires_grad=True)
    bias = torch.zeros(num_classes, dtype=inputs.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=_ROUNDS, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        errors = functional.cross_entropy(points @ weights + bias, classes, weight=balance, reduction="sum")
        value = errors + weights.square().sum() / 2
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return directions @ weights.detach(), bias.detach()


def part(recording: Recording) -> dict[str, Any]:
    """Return how well the source domain is recognised from the input of the classifier."""
    source = recording.source
    if source is None or source.classified is None:
        return {}
    rows = paired_sample(source.labels, source.domains)
    rows = rows[torch.isin(source.labels[rows], spaced(recording.num_classes, PROBED_CLASSES))]
    halves = seeding.generator("diagnostics", "probe")
    probe = domain_probe(source.classified[rows], source.labels[rows], source.domains[rows], generator=halves)
    return {} if probe is None else {"probe": asdict(probe) | {"examples": len(rows)}}
