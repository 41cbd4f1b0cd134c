"""Many small runs on one GPU: total training steps per second of 1, 2, 4 and 8 processes, with and without MPS.

    python benchmarks/bench_small_gpu.py [--save]

Each process is a whole run of MESSI with ``small_cnn`` on Rotated-Colored MNIST, 5 source domains x 32 images, with its
records. The processes wait for each other at step 200 and are timed from there; the total is the number of steps of all
processes divided by the time until the last one finishes. Their only evaluation comes after the timed steps. Seeds
differ. The processes take turns on the GPU, or run concurrently through MPS, as ``messi.sweeps`` starts them. The run
of the first seed must write the same records with any number of other processes, and the same loss terms without
capture, which is timed over fewer steps.
"""

import functools
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

from harness import gpu, parse, show
from messi.algorithms.messi import MESSI
from messi.core.records import TrainRecord
from messi.core.rundir import RunDir
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.examples import Examples
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.models.encoder import EncoderConfig
from messi.sweeps.launchers.common.mps import shared_gpu

DEVICE = "cuda"
FIRST, TIMED, TIMED_EAGER, PROCESSES = 200, 1300, 300, (1, 2, 4, 8)
DATA = RotatedColoredMNIST(environments=10, num_sources=5)
WAIT_S = 60  # a failed process never reaches the barrier
HELD_TO_RATIO = 1.0  # of four processes through MPS to one: they must raise total throughput

barriers: dict[int, Barrier] = {}
"""In a process of the pool: the barriers by number of processes."""


@dataclass(frozen=True)
class Order:
    """One of the concurrent runs."""

    out: Path
    seed: int
    processes: int
    timed: int = TIMED
    capture: bool = True


class Watch:
    """Waits for the other runs and records when the timed steps began and ended, including the GPU's work."""

    def __init__(self, barrier: Barrier, last: int) -> None:
        self.barrier, self.last = barrier, last
        self.start = self.end = 0.0

    def stepped(self, step: int) -> None:
        """Read the clock, which all processes share, at the start and end of the timed steps."""
        if step == FIRST:
            torch.cuda.synchronize()
            self.barrier.wait(WAIT_S)
            self.start = time.monotonic()
        elif step == self.last:
            torch.cuda.synchronize()
            self.end = time.monotonic()

    def started(self, step: int, steps: int) -> None:
        """Not used, like those below."""

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """The run writes its records itself."""

    def evaluated(self, step: int, accuracy: float) -> None:
        """The timed steps are over."""

    def finished(self) -> None:
        """Nothing is open."""


def config(order: Order) -> RunConfig:
    steps = FIRST + order.timed + 10  # those after the timed ones fill a record, and the evaluation comes with the last
    training, encoder = TrainingConfig(steps=steps, evaluate_every=steps), EncoderConfig(backbone="small_cnn")
    target = (DATA.test_domain,)
    return RunConfig(
        data=DATA, target=target, algorithm=MESSI.Config(), encoder=encoder, training=training, seed=order.seed
    )


def begin(given: dict[int, Barrier]) -> None:
    """Initialise a process of the pool; barriers can only be passed here."""
    torch.set_num_threads(1)
    barriers.update(given)


@functools.cache
def examples() -> Examples:
    return DATA.load()


def warm_up(_: int) -> None:
    """Load the digits and wait for all processes of the pool."""
    examples()
    torch.zeros(1, device=DEVICE)
    barriers[max(PROCESSES)].wait(WAIT_S)


def follow(order: Order) -> tuple[float, float]:
    """Run in this process; return when the timed steps began and ended."""
    watch = Watch(barriers[order.processes], FIRST + order.timed)
    run(config(order), out=order.out, device=DEVICE, capture=order.capture, observers=[watch], load=examples)
    return watch.start, watch.end


def steps_per_second(pool: ProcessPoolExecutor, orders: Sequence[Order]) -> float:
    """Do several runs concurrently; return their total steps per second."""
    futures = [pool.submit(follow, order) for order in orders]
    times = [future.result() for future in as_completed(futures)]  # a failed one comes first and is raised
    steps = sum(order.timed for order in orders)
    return steps / (max(end for _, end in times) - min(start for start, _ in times))


def assert_equal_results(plans: Mapping[int, Sequence[Order]], eager: Order) -> None:
    """Compare the run of the first seed with the same run among others, and with its shorter eager run."""
    alone, other = (RunDir(plans[number][-1].out).read_records() for number in (1, 2))
    assert other != alone, "runs with different seeds must differ"
    for number, orders in plans.items():
        assert RunDir(orders[0].out).read_records() == alone, f"{number} processes: different records"
    terms = [record for record in RunDir(eager.out).read_records() if isinstance(record, TrainRecord)]
    assert len(terms) == (FIRST + TIMED_EAGER) // 10 + 1
    assert terms == alone[: len(terms)], "loss terms differ without capture"


def measure(folder: Path) -> tuple[dict[int, float], float]:
    """Return the speeds by number of processes, and that of an eager run."""
    plans = {n: [Order(folder / f"{n}-{seed}", seed, n) for seed in range(n)] for n in PROCESSES}
    eager = Order(folder / "eager", 0, 1, TIMED_EAGER, capture=False)
    context = multiprocessing.get_context("spawn")
    given = {number: context.Barrier(number) for number in PROCESSES}
    with ProcessPoolExecutor(max(PROCESSES), context, initializer=begin, initargs=(given,)) as pool:
        list(pool.map(warm_up, range(max(PROCESSES))))
        speeds = {number: steps_per_second(pool, orders) for number, orders in plans.items()}
        eager_speed = steps_per_second(pool, [eager])
    assert_equal_results(plans, eager)
    return speeds, eager_speed


def main() -> None:
    save = parse("Time small runs that share a GPU.").save
    if not torch.cuda.is_available():
        print("This benchmark needs a CUDA device and found none.", file=sys.stderr)
        sys.exit(2)
    with tempfile.TemporaryDirectory() as folder:
        turns, eager = measure(Path(folder) / "turns")
        with shared_gpu() as works:
            assert works, "MPS does not work here"
            at_once, _ = measure(Path(folder) / "at-once")
    lines = [
        "| processes on one GPU | steps/s of all, in turns | | steps/s of all, at once | |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {n} | {turns[n]:,.0f} | {turns[n] / turns[1]:.2f} x | {at_once[n]:,.0f} | {at_once[n] / turns[1]:.2f} x |"
        for n in PROCESSES
    ]
    lines.append(f"| 1, without capture | {eager:,.0f} | {eager / turns[1]:.2f} x | | |")
    equal = "the run of the first seed leaves the same records in all rows, without capture the same loss terms"
    steps = f"{TIMED:,} steps of every process ({TIMED_EAGER} without capture), batches of 160"
    lines += ["", f"Equal results: {equal}, to the bit. {steps}. At once: through MPS.", "", gpu()]
    show("\n".join(lines) + "\n", name="small_gpu", title="Small runs that share a GPU", save=save)
    assert at_once[4] / turns[1] > HELD_TO_RATIO, "four processes must raise total throughput"


if __name__ == "__main__":
    main()
