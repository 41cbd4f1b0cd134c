"""Whether the domain can be told from the features of a class.

For every class a logistic regression is fitted on half of the examples and tried on the other half. Domains count
equally however many examples they have: in the fit by weights, in the accuracy as the mean over domains of the share
that is found. So whoever cannot tell domains apart gets 1 / K in a class that K domains have, whatever they guess.
Counting examples instead, naming the largest domain always would give its share, another number for every data set.
Legend: B examples, R features, K domains.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

SMALLEST = 4
"""Examples that a domain needs of a class to take part: two to learn from and two to be tried on."""
_ROUNDS = 100


@dataclass(frozen=True)
class Probe:
    """Means over the classes that at least two domains have enough examples of."""

    accuracy: float
    chance: float
    """What guessing gives."""


def domain_probe(features: Tensor, labels: Tensor, domains: Tensor, *, stream: torch.Generator) -> Probe | None:
    """Return how well the domain is told within a class; None where no class has two domains with enough examples.

    Shapes: features [B, R], labels [B], domains [B]. ``stream`` decides who is in which half.
    """
    features, results = features.double(), []
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().squeeze(1)
        names, counts = domains[rows].unique(return_counts=True)
        names = names[counts >= SMALLEST]
        if len(names) > 1:
            halves = [_halves(rows[domains[rows] == name], stream) for name in names.tolist()]
            results.append((_accuracy(features, halves), 1 / len(names)))
    if not results:
        return None
    accuracies, chances = zip(*results, strict=True)
    return Probe(accuracy=sum(accuracies) / len(results), chance=sum(chances) / len(results))


def _halves(rows: Tensor, stream: torch.Generator) -> tuple[Tensor, Tensor]:
    shuffled = rows[torch.randperm(len(rows), generator=stream)]
    return shuffled[: len(rows) // 2], shuffled[len(rows) // 2 :]


def _accuracy(features: Tensor, halves: list[tuple[Tensor, Tensor]]) -> float:
    """Learn from the first half of every domain; return the mean share that is found of the second halves."""
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

    The w_i are such that all classes weigh the same and a mean example 1; inputs [B, R] float64, classes [B].
    """
    # The best weights are sums of inputs, so that no direction is needed in which no input lies.
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
