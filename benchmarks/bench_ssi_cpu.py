"""SSI-OT on two CPU cores: messi's batched solver against a Python loop over POT, forward and backward.

    python benchmarks/bench_ssi_cpu.py [--save]

The batches have the shapes of PACS, of Rotated-Colored MNIST and of a table with seven domains; 6 experts, 50 Sinkhorn
iterations, epsilon 0.1 of the mean cost. The other side is what POT's documentation recommends if only the gradient of
the value is needed: ``ot.solve`` on the torch cost matrix of each slot with ``reg_type="KL"`` and ``grad="envelope"``.
Neither side differentiates through the iterations; ``tol=0`` makes POT do all 50 of them. Both sides start from the
same tensors and find the slots themselves. Values and gradients are compared before anything is timed.
"""

import itertools
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ot
import torch
from torch import Tensor

from harness import parse, show
from messi.cli.main import keep_freed_memory
from messi.losses.ssi.loss import ssi_loss

EXPERTS, ITERATIONS, EPSILON, SHARPNESS = 6, 50, 0.1, 4.0
THREADS, REPEATS, WARM_UP = 2, 15, 2
REQUIRED_RATIO = 20


@dataclass(frozen=True)
class Shape:
    """A batch's size."""

    name: str
    domains: int
    per_domain: int
    classes: int
    width: int


SHAPES = (
    Shape("PACS, DeiT-S", domains=3, per_domain=32, classes=7, width=384),
    Shape("digits, small_cnn", domains=9, per_domain=32, classes=2, width=128),
    Shape("a table, residual_mlp", domains=7, per_domain=32, classes=2, width=64),
)


@dataclass(frozen=True)
class Batch:
    """Features [M, B, R], routing [B, M], labels [B], domains [B]."""

    features: Tensor
    routing: Tensor
    labels: Tensor
    domains: Tensor


def make_batch(shape: Shape) -> Batch:
    """Return features that differ by class, domain and image, like those of an encoder."""
    generator = torch.Generator().manual_seed(0)
    domains = torch.arange(shape.domains).repeat_interleave(shape.per_domain)
    labels = torch.randint(shape.classes, domains.shape, generator=generator)
    by_class = torch.randn(EXPERTS, shape.classes, shape.width, generator=generator)[:, labels]
    by_domain = torch.randn(EXPERTS, shape.domains, shape.width, generator=generator)[:, domains]
    by_image = torch.randn(EXPERTS, len(labels), shape.width, generator=generator)
    routing = torch.randn(len(labels), EXPERTS, generator=generator).softmax(-1)
    return Batch((by_class + by_domain / 2 + by_image).requires_grad_(), routing, labels, domains)


def messi_loss(batch: Batch) -> Tensor:
    return ssi_loss(
        batch.features,
        batch.routing,
        batch.labels,
        batch.domains,
        sharpness=SHARPNESS,
        epsilon=EPSILON,
        iterations=ITERATIONS,
    )


def pot_loss(batch: Batch) -> Tensor:
    cells: dict[tuple[int, int], list[int]] = {}
    for index, cell in enumerate(zip(batch.labels.tolist(), batch.domains.tolist(), strict=True)):
        cells.setdefault(cell, []).append(index)
    costs, weights = [], []
    for first, second in itertools.combinations(sorted(cells), 2):
        if first[0] == second[0]:
            x, y = cells[first], cells[second]
            gates = [torch.sigmoid(SHARPNESS * batch.routing[cell].mean(0)) for cell in (x, y)]
            weights.append(gates[0] * gates[1])
            costs += [ot.dist(features[x], features[y]) for features in batch.features]
    epsilon = EPSILON * torch.cat([cost.detach().flatten() for cost in costs]).mean().item()
    with warnings.catch_warnings(action="ignore"):  # POT warns if it does not stop early
        values = [
            ot.solve(cost, reg=epsilon, reg_type="KL", max_iter=ITERATIONS, tol=0, grad="envelope").value
            for cost in costs
        ]
    return (torch.cat(weights) * torch.stack(values)).mean()


def value_and_gradient(loss: Callable[[Batch], Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
    value = loss(batch)
    (gradient,) = torch.autograd.grad(value, batch.features)
    return value.detach(), gradient


def assert_equal_results(batch: Batch) -> None:
    value, gradient = value_and_gradient(messi_loss, batch)
    expected, wanted = value_and_gradient(pot_loss, batch)
    assert abs(value - expected) <= 1e-5 * abs(expected), (value, expected)
    assert (gradient - wanted).norm() <= 1e-4 * wanted.norm()


def milliseconds(loss: Callable[[Batch], Tensor], batch: Batch) -> float:
    start = time.perf_counter()
    value_and_gradient(loss, batch)
    return 1000 * (time.perf_counter() - start)


def measure(batch: Batch) -> tuple[float, float]:
    """Return the median times of both sides, which take turns."""
    for loss in (messi_loss, pot_loss) * WARM_UP:
        milliseconds(loss, batch)
    turns = [(milliseconds(messi_loss, batch), milliseconds(pot_loss, batch)) for _ in range(REPEATS)]
    ours, theirs = zip(*turns, strict=True)
    return statistics.median(ours), statistics.median(theirs)


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def table(times: dict[Shape, tuple[float, float]]) -> str:
    rows = "\n".join(
        f"| {shape.name}: {shape.domains} x {shape.per_domain}, {shape.classes} classes, width {shape.width} "
        f"| {theirs:.1f} | {ours:.1f} | {theirs / ours:.1f} x |"
        for shape, (ours, theirs) in times.items()
    )
    return f"""\
| SSI-OT, forward + backward, median of {REPEATS}, ms | loop over POT {ot.__version__}, `ot.solve(grad="envelope")` \
| messi, all slots at once | |
|---|---:|---:|---:|
{rows}

{EXPERTS} experts, {ITERATIONS} iterations, epsilon {EPSILON} of the mean cost, float32; equal values (1e-5) and \
gradients (1e-4).
{cpu_model()}, {THREADS} threads, torch {torch.__version__}, Python {platform.python_version()}.
"""


def main() -> None:
    save = parse("Time SSI-OT on the CPU against a loop over POT.").save
    torch.set_num_threads(THREADS)
    keep_freed_memory()  # for both sides, as the command line does
    times = {}
    for shape in SHAPES:
        batch = make_batch(shape)
        assert_equal_results(batch)
        times[shape] = measure(batch)
    show(table(times), name="ssi_cpu", title="SSI-OT on the CPU", save=save)
    assert all(theirs >= REQUIRED_RATIO * ours for ours, theirs in times.values()), f"held to {REQUIRED_RATIO} x"


if __name__ == "__main__":
    main()
