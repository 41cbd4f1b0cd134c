"""The SSI loss alone on a GPU: forward and backward, including slot finding.

    python benchmarks/bench_ssi_gpu.py [--save]

Two times are measured: a call from Python until its result is available, and a replay of its CUDA graph among other
replays, which is what the loss adds to a captured training step. Before it is timed, every value and gradient, also
that of a replay, is compared with float64 on the CPU.

The other sides compute the same at the shape of PACS: they start from the same tensors, find the slots themselves and
return value and gradient. Two loop over slots and experts: plain Sinkhorn with autograd through its iterations, and
POT's ``ot.solve`` as in ``bench_ssi_cpu``. Three process all slots at once, padded: POT's ``solve_batch``, geomloss and
messi without its kernels. ``solve_batch`` has no KL for masses of zero, so its entropy is used, which differs by a
constant. geomloss decreases epsilon by its own schedule instead of doing 50 iterations, and is less converged.
"""

import importlib.util
import itertools
import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

import chart
from harness import gpu, parse, show
from messi.discrepancy.clouds import averaging
from messi.discrepancy.reference import slots, squared_distances
from messi.discrepancy.sinkhorn import entropic_ot
from messi.losses.ssi.loss import Discrepancy, ssi_loss
from messi.losses.ssi.slots import SlotRule, find_slots, slot_weights

DEVICE = torch.device("cuda")
WIDTH, ITERATIONS, EPSILON, SHARPNESS = 384, 50, 0.1, 4.0
WARM_UP, REPEATS, STRETCH, TURNS = 20, 100, 10, 50
VALUE_WITHIN, GRADIENT_WITHIN, HELD_TO_MS = 1e-5, 1e-4, 1.0
POT: Any = importlib.import_module("ot") if importlib.util.find_spec("ot") else None
GEOMLOSS: Any = importlib.import_module("geomloss") if importlib.util.find_spec("geomloss") else None


@dataclass(frozen=True)
class Shape:
    """The shape of a batch; domain sizes differ by at most one image."""

    classes: int = 7
    domains: int = 3
    images: int = 96
    experts: int = 6


SHAPES = {"PACS": Shape(), "OfficeHome": Shape(classes=65), "DomainNet": Shape(classes=345, domains=5, images=160)}
GROWTH = {
    "domains": ("100 images of 7 classes", [Shape(domains=n, images=100) for n in (2, 3, 5, 10, 20, 50)]),
    "classes": ("96 images of 3 domains", [Shape(classes=n) for n in (2, 7, 20, 65, 345)]),
    "experts": ("96 images of 3 domains and 7 classes", [Shape(experts=n) for n in (1, 2, 4, 6, 12, 24)]),
    "images": ("3 domains and 7 classes", [Shape(images=n) for n in (48, 96, 192, 384, 768)]),
}


class Batch(NamedTuple):
    """Features [M, B, R], routing [B, M], labels [B], domains [B]."""

    features: Tensor
    routing: Tensor
    labels: Tensor
    domains: Tensor


Loss = Callable[[Batch], Tensor]
Result = tuple[Tensor, Tensor]


def make_batch(shape: Shape) -> Batch:
    """Return features that differ by class, domain and image, like those of an encoder."""
    generator = torch.Generator().manual_seed(0)
    domains = torch.arange(shape.images) * shape.domains // shape.images
    labels = torch.randint(shape.classes, domains.shape, generator=generator)
    by_class = torch.randn(shape.experts, shape.classes, WIDTH, generator=generator)[:, labels]
    by_domain = torch.randn(shape.experts, shape.domains, WIDTH, generator=generator)[:, domains]
    by_image = torch.randn(shape.experts, shape.images, WIDTH, generator=generator)
    routing = torch.randn(shape.images, shape.experts, generator=generator).softmax(-1)
    return send(Batch(by_class + by_domain / 2 + by_image, routing, labels, domains), DEVICE, torch.float32)


def send(batch: Batch, device: torch.device | str, dtype: torch.dtype) -> Batch:
    features = batch.features.detach().to(device, dtype).requires_grad_()
    return Batch(features, *(tensor.to(device) for tensor in batch[1:]))


def messi_loss(batch: Batch, discrepancy: Discrepancy = "ot") -> Tensor:
    return ssi_loss(*batch, discrepancy=discrepancy, sharpness=SHARPNESS, epsilon=EPSILON, iterations=ITERATIONS)


def loop(batch: Batch, solve: Callable[[Tensor, float], Tensor]) -> Tensor:
    """Return the loss from the costs [N, P] of each slot and expert in turn."""
    costs, weights = [], []
    for first, second in slots(batch.labels, batch.domains):
        gates = [torch.sigmoid(SHARPNESS * batch.routing[cell].mean(0)) for cell in (first, second)]
        weights.append(gates[0] * gates[1])
        costs += [squared_distances(features[first], features[second]) for features in batch.features]
    epsilon = EPSILON * torch.cat([cost.detach().flatten() for cost in costs]).mean().item()
    return (torch.cat(weights) * torch.stack([solve(cost, epsilon) for cost in costs])).mean()


def unrolled(cost: Tensor, epsilon: float) -> Tensor:
    """Return the dual value of plain log-domain Sinkhorn; autograd differentiates every iteration."""
    n, p = cost.shape
    f, g = cost.new_zeros(n), cost.new_zeros(p)
    for _ in range(ITERATIONS):
        f = -epsilon * torch.logsumexp((g - cost) / epsilon - math.log(p), 1)
        g = -epsilon * torch.logsumexp((f[:, None] - cost) / epsilon - math.log(n), 0)
    return f.mean() + g.mean()


def pot_loop(batch: Batch) -> Tensor:
    options = {"reg_type": "KL", "max_iter": ITERATIONS, "tol": 0, "grad": "envelope"}
    with warnings.catch_warnings(action="ignore"):  # POT warns if it does not stop early
        return loop(batch, lambda cost, epsilon: POT.solve(cost, reg=epsilon, **options).value)


def padded(batch: Batch, solve: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Return the loss from all L slots of all experts at once: points x, y [L, N, R] and their masses a, b [L, N]."""
    found, points, masses = find_slots(batch.labels, batch.domains), [], []
    for cells in (found.first, found.second):
        members = found.members[cells]
        points.append(batch.features.index_select(1, members.flatten()).unflatten(1, members.shape).flatten(0, 1))
        masses.append(averaging(found.mask[cells], torch.float32).squeeze(-2).repeat(len(batch.features), 1))
    weights = slot_weights(batch.routing, found, SlotRule(sharpness=SHARPNESS))
    return (weights.flatten() * solve(*points, *masses)).mean()


def relative_epsilon(costs: Tensor, a: Tensor, b: Tensor) -> float:
    pairs = (a[:, :, None] > 0) & (b[:, None, :] > 0)
    return EPSILON * float((costs.detach() * pairs).sum() / pairs.sum())


def without_kernels(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return entropic_ot(x, y, a > 0, b > 0, epsilon=EPSILON, iterations=ITERATIONS, relative=True)


def pot_batch(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    costs = POT.batch.dist_batch(x, y)
    epsilon = relative_epsilon(costs, a, b)
    options = {"max_iter": ITERATIONS, "tol": 0, "method": "log_sinkhorn", "reg_type": "entropy", "grad": "envelope"}
    values: Tensor = POT.batch.solve_batch(costs, reg=epsilon, a=a, b=b, **options).value
    return values - epsilon * torch.log(a.amax(-1) * b.amax(-1))


def geomloss_batch(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    epsilon = relative_epsilon(torch.cdist(x.detach(), y.detach()).square(), a, b)
    options = {"debias": False, "backend": "tensorized", "scaling": 0.9}
    solve = GEOMLOSS.SamplesLoss("sinkhorn", p=2, blur=math.sqrt(epsilon / 2), **options)
    values: Tensor = 2 * solve(a, x, b, y)  # its cost is half the squared distance
    return values


@dataclass(frozen=True)
class Side:
    """Another implementation of the same loss."""

    name: str
    loss: Loss
    package: Any = True
    repeats: int = REPEATS
    within: float = GRADIENT_WITHIN


SIDES = (
    Side("loop over slots, Sinkhorn, autograd through its iterations", partial(loop, solve=unrolled), repeats=3),
    Side('loop over slots, POT `ot.solve(grad="envelope")`', pot_loop, POT, repeats=3),
    Side('padded, POT `ot.batch.solve_batch(grad="envelope")`', partial(padded, solve=pot_batch), POT),
    Side("padded, geomloss `SamplesLoss(scaling=0.9)`", partial(padded, solve=geomloss_batch), GEOMLOSS, within=2e-3),
    Side("padded, messi without its kernels", partial(padded, solve=without_kernels)),
)


def value_and_gradient(loss: Loss, batch: Batch) -> Result:
    value = loss(batch)
    (gradient,) = torch.autograd.grad(value, batch.features)
    return value.detach(), gradient


def expected(loss: Loss, batch: Batch) -> Result:
    """Return value and gradient in float64 on the CPU."""
    return value_and_gradient(loss, send(batch, "cpu", torch.float64))


def check(result: Result, wanted: Result, name: str, within: float = GRADIENT_WITHIN) -> None:
    """Compare the value, and the gradient in the Euclidean norm."""
    value_off, off = (((a.cpu() - b).norm() / b.norm()).item() for a, b in zip(result, wanted, strict=True))
    assert value_off <= VALUE_WITHIN, f"{name}: the value is off by {value_off:.1e}"
    assert off <= within, f"{name}: the gradient is off by {off:.1e}"


def time_call(loss: Loss, batch: Batch, repeats: int = REPEATS) -> float:
    """Return the median time in ms of a synchronous call."""
    times, warm_up = [], min(WARM_UP, repeats // 2)
    for _ in range(warm_up + repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        value_and_gradient(loss, batch)
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[warm_up:])


def time_replay(loss: Loss, batch: Batch) -> float:
    """Return the median GPU time in ms of a replay; replays are queued ahead, so the GPU never waits for the host."""
    value_and_gradient(loss, batch)  # compiles the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = value_and_gradient(loss, batch)
    graph.replay()
    check(result, expected(loss, batch), "captured")
    times = []
    for _ in range(TURNS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(2e6))  # noqa: SLF001 (about 1 ms, in which the replays are queued)
        start.record()
        for _ in range(STRETCH):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)) / STRETCH)
    return statistics.median(times)


def count(batch: Batch) -> int:
    """Return the number of slots of all experts."""
    return len(find_slots(batch.labels, batch.domains).first) * len(batch.features)


def time_shapes() -> tuple[list[str], dict[str, float]]:
    """Return a table, and the times of the calls of SSI-OT."""
    lines = [row("", "batch", "slots x experts", "called, ms", "captured, ms"), "|---|---|---:|---:|---:|"]
    calls: dict[str, float] = {}
    for kind, (name, shape) in itertools.product(get_args(Discrepancy), SHAPES.items()):
        batch, loss = make_batch(shape), partial(messi_loss, discrepancy=kind)
        check(value_and_gradient(loss, batch), expected(loss, batch), f"{name}, {kind}")
        called, captured = time_call(loss, batch), time_replay(loss, batch)
        title = f"{name}: {shape.domains} x {shape.images // shape.domains}, {shape.classes} classes"
        lines.append(row(f"SSI-{kind.upper()}", title, count(batch), f"{called:.3f}", f"{captured:.3f}"))
        calls |= {name: called} if kind == "ot" else {}
    return lines, calls


def time_sides(ours: float) -> list[str]:
    batch = make_batch(SHAPES["PACS"])
    wanted = expected(messi_loss, batch)
    lines = [row("SSI-OT at the shape of PACS, called", "ms", "", "gradient within"), "|---|---:|---:|---:|"]
    for side in (side for side in SIDES if side.package):
        check(value_and_gradient(side.loss, batch), wanted, side.name, side.within)
        taken = time_call(side.loss, batch, side.repeats)
        lines.append(row(side.name, f"{taken:.3f}", f"{taken / ours:.1f} x", f"{side.within:.0e}"))
    lines += [row("messi", f"{ours:.3f}", "1 x", f"{GRADIENT_WITHIN:.0e}"), ""]
    return lines + [f"Left out, its package is not installed: {side.name}.\n" for side in SIDES if not side.package]


def time_growth() -> tuple[list[str], list[chart.Panel]]:
    """Return tables and panels of the captured time of SSI-OT by what grows."""
    lines, panels = [], []
    for name, (constant, shapes) in GROWTH.items():
        batches, numbers = [make_batch(shape) for shape in shapes], [getattr(shape, name) for shape in shapes]
        times = [time_replay(messi_loss, batch) for batch in batches]
        lines += [row(f"{name} ({constant})", *numbers), row("---", *["---:"] * len(numbers))]
        lines += [row("slots x experts", *map(count, batches)), row("captured, ms", *(f"{t:.3f}" for t in times)), ""]
        panels.append(chart.Panel(name.capitalize(), f"{name} ({constant})", numbers, times))
    return lines, panels


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    save = parse("Time SSI on the GPU against other ways to compute it.").save
    shapes, calls = time_shapes()
    sides, (growth, panels) = time_sides(calls["PACS"]), time_growth()
    lines = [*shapes, "", *sides, "SSI-OT, captured:", "", *growth]
    if save:
        figure = chart.figure("SSI-OT, forward and backward, in a CUDA graph", "time, ms", panels)
        lines += [f"![SSI-OT as a batch grows]({chart.save(figure, 'ssi_growth')})", ""]
    lines += [
        f"{ITERATIONS} iterations, epsilon {EPSILON} of the mean cost, width {WIDTH}, 6 experts unless given, float32.",
        f"Equal to float64: values to {VALUE_WITHIN:.0e}, gradients to {GRADIENT_WITHIN:.0e} unless given.",
        f"Medians. {gpu()}.",
    ]
    show("\n".join(lines) + "\n", name="ssi_gpu", title="SSI on the GPU", save=save)
    assert max(calls.values()) <= HELD_TO_MS, f"held to {HELD_TO_MS} ms"


if __name__ == "__main__":
    main()
