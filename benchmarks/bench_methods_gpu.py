"""The step of every method on a GPU, compared with that of ERM.

    python benchmarks/bench_methods_gpu.py [--save]

The shape of PACS: 3 x 32 random images of 224 x 224, 7 classes, every method with its defaults and after annealing, on
DeiT-S/16, and on ResNet-50 for the paper's ResNet-50 methods. Before a method is timed, its captured steps must leave
the same bits as eager ones, with DeiT-Ti in place of DeiT-S. A method and ERM on the same backbone take turns in short
stretches; a ratio is the median over the turns. The last two ratios, ours and the paper's, are relative to ERM on
ResNet-50, regardless of the backbone of the method. A step of DANN and CDANN is the mean of the discriminator's and the
network's.
"""

import gc
import statistics
from dataclasses import dataclass

import torch

from bench_step_gpu import SMALL, TINY, Contestant
from harness import gpu, parse, show
from messi.algorithms.common.base import ALGORITHMS, AlgorithmConfig
from messi.algorithms.erm import ERM
from messi.algorithms.gmoe import GMoE
from messi.algorithms.messi import MESSI
from messi.algorithms.mixstyle import MixStyle
from messi.core.seeding import deterministic
from messi.engine.stepper import Flatness

RESNET = "resnet50"
STRETCH, TURNS = 12, 7


@dataclass(frozen=True)
class Method:
    """A method to time."""

    name: str
    config: AlgorithmConfig
    flatness: Flatness = "none"
    paper: str = ""
    """The paper's ratio to ERM on ResNet-50."""

    def make(self, backbone: str, *, capture: bool = True) -> Contestant:
        """Build the method with its optimizer."""
        return Contestant.make(self.config, backbone, capture=capture, flatness=self.flatness)


PAPER = {"gmoe": "2.02", "messi": "12.39"}
TRANSFORMERS = [
    *(Method(n, ALGORITHMS.config(n)(), paper=PAPER.get(n, "")) for n in ALGORITHMS.names() if n != "mixstyle"),
    Method("messi, discrepancy mmd", MESSI.Config(discrepancy="mmd"), paper="4.24"),
    Method("erm + sam", ERM.Config(), "sam"),
    Method("erm + sagm", ERM.Config(), "sagm"),
    Method("gmoe + sagm", GMoE.Config(), "sagm", "4.14"),
    Method("messi + sagm", MESSI.Config(), "sagm"),
]
CONVOLUTIONAL = [
    Method("erm", ERM.Config(), paper="1"),
    Method("erm + sagm", ERM.Config(), "sagm", "2.04"),
    Method("mixstyle", MixStyle.Config()),
]


def captured_is_eager(method: Method, backbone: str) -> bool:
    """Return whether steps are captured; captured steps must leave the same bits as eager ones."""
    eager, captured = contestants = [method.make(backbone, capture=capture) for capture in (False, True)]
    for contestant in contestants:
        contestant.milliseconds(STRETCH)
    assert all(map(torch.equal, eager.parameters, captured.parameters)), method.name
    return captured.updater.captured


def compare(erm: Contestant, method: Method, backbone: str, unit: float) -> str:
    """Time a method and ERM in turns; return its row."""
    captured = captured_is_eager(method, TINY if backbone == SMALL else backbone)
    other = method.make(backbone)
    other.milliseconds(STRETCH)
    turns = [(erm.milliseconds(STRETCH), other.milliseconds(STRETCH)) for _ in range(TURNS)]
    time, ratio = statistics.median(b for _, b in turns), statistics.median(b / a for a, b in turns)
    numbers = f"{time:.2f} | {ratio:.2f} | {time / unit:.2f}"
    row = f"| {method.name} | {numbers} | {method.paper} | {'yes' if captured else 'no'} |"
    print(row, flush=True)
    del other
    gc.collect()
    torch.cuda.empty_cache()
    return row


def table(methods: list[Method], backbone: str, title: str, unit: float | None = None) -> tuple[list[str], float]:
    """Return the table of a backbone and the time of its ERM step."""
    erm = Contestant.make(ERM.Config(), backbone)
    erm.milliseconds(STRETCH)
    time = statistics.median(erm.milliseconds(STRETCH) for _ in range(TURNS))
    heads = [
        f"| {title}, batch 96, deterministic | ms | to ERM | to ERM, ResNet-50 | the paper | captured |",
        "|---|---:|---:|---:|---:|---|",
    ]
    return [*heads, *(compare(erm, method, backbone, unit or time) for method in methods)], time


def main() -> None:
    save = parse("Time the step of every method on a GPU.").save
    with deterministic():
        convolutional, unit = table(CONVOLUTIONAL, RESNET, "ResNet-50")
        transformers, _ = table(TRANSFORMERS, SMALL, "DeiT-S/16", unit)
    equal = "Equal results: captured and eager steps leave the same bits in every parameter (DeiT-Ti, ResNet-50)."
    lines = [equal, "", *transformers, "", *convolutional, "", gpu()]
    show("\n".join(lines) + "\n", name="methods_gpu", title="The step of every method on the GPU", save=save)


if __name__ == "__main__":
    main()
