"""The step of every method on a GPU, beside that of ERM.

    python benchmarks/bench_methods_gpu.py [--save]

PACS's shape: 3 x 32 random images of 224 x 224, 7 classes, DeiT-S/16, every method with its defaults and past its
annealing. Before a method is timed, its captured steps are shown to leave the same bits behind as eager ones, on
DeiT-Ti. A method and ERM take turns in short stretches; a ratio is the median over the turns. The paper's ratios stand
in a column of their own.
"""

import gc
import statistics

import torch

from bench_step_gpu import SMALL, TINY, Contestant
from keep import gpu, parse, show
from messi.algorithms._base import ALGORITHMS, AlgorithmConfig
from messi.algorithms.erm import Erm
from messi.algorithms.gmoe import Gmoe
from messi.algorithms.messi import Messi
from messi.algorithms.mixstyle import Mixstyle
from messi.core.seeding import deterministic
from messi.engine.stepper import Flatness

RESNET = "resnet50"
STRETCH, TURNS = 12, 7
PAPER = {"gmoe": "2.02", "erm + sagm": "2.04", "gmoe + sagm": "4.14"}


def rows() -> dict[str, tuple[AlgorithmConfig, Flatness]]:
    """Return what is timed by its name in the table."""
    found: dict[str, tuple[AlgorithmConfig, Flatness]] = {
        name: (ALGORITHMS.load(name).Config(), "none") for name in ALGORITHMS.names() if name != "mixstyle"
    }
    found["messi, discrepancy mmd"] = (Messi.Config(discrepancy="mmd"), "none")
    found["erm + sam"] = (Erm.Config(), "sam")
    for name, config in (("erm", Erm.Config()), ("gmoe", Gmoe.Config()), ("messi", Messi.Config())):
        found[f"{name} + sagm"] = (config, "sagm")
    return found


def captured_is_eager(config: AlgorithmConfig, flatness: Flatness, backbone: str) -> bool:
    """Return whether steps are captured; where they are, they must leave the bits of eager ones."""
    contestants = [Contestant.make(config, backbone, capture=capture, flatness=flatness) for capture in (False, True)]
    for contestant in contestants:
        contestant.milliseconds(STRETCH)
    eager, captured = contestants
    assert all(map(torch.equal, eager.parameters, captured.parameters)), config
    return captured.updater.captured


def compare(erm: Contestant, name: str, config: AlgorithmConfig, flatness: Flatness, backbone: str = SMALL) -> str:
    """Time a method in turns with ERM; return its row."""
    captured = captured_is_eager(config, flatness, TINY if backbone == SMALL else backbone)
    other = Contestant.make(config, backbone, flatness=flatness)
    other.milliseconds(STRETCH)
    turns = [(erm.milliseconds(STRETCH), other.milliseconds(STRETCH)) for _ in range(TURNS)]
    time, ratio = statistics.median(b for _, b in turns), statistics.median(b / a for a, b in turns)
    row = f"| {name} | {time:.2f} | {ratio:.2f} | {PAPER.get(name, '')} | {'yes' if captured else 'no'} |"
    print(row, flush=True)
    del other
    gc.collect()
    torch.cuda.empty_cache()
    return row


def compare_convolutional() -> list[str]:
    """Time MixStyle, which mixes feature maps, against ERM on the same ResNet-50."""
    erm = Contestant.make(Erm.Config(), RESNET)
    erm.milliseconds(STRETCH)
    row = compare(erm, "mixstyle, on ResNet-50", Mixstyle.Config(), "none", RESNET)
    resnet = statistics.median(erm.milliseconds(STRETCH) for _ in range(TURNS))
    return [f"| erm, on ResNet-50 | {resnet:.2f} | 1.00 | | yes |", row]


def main() -> None:
    save = parse("Time the step of every method on a GPU.").save
    with deterministic():
        erm = Contestant.make(Erm.Config(), SMALL)
        erm.milliseconds(STRETCH)
        table = [compare(erm, name, config, flatness) for name, (config, flatness) in rows().items()]
        table += compare_convolutional()
        plain = Contestant.make(Erm.Config(), SMALL, timms_own=True)
        plain.milliseconds(STRETCH)
        time = statistics.median(plain.milliseconds(STRETCH) for _ in range(TURNS))
    lines = [
        "Equal results: captured steps leave the bits of eager ones in every parameter (DeiT-Ti, ResNet-50).", "",
        "| method, DeiT-S/16, batch 96, deterministic | ms | to ERM | the paper | captured |",
        "|---|---:|---:|---:|---|", *table,
        f"| erm, timm's own forward instead of the fused one | {time:.2f} | | | yes |", "", gpu(),
    ]  # fmt: skip
    show("\n".join(lines) + "\n", name="methods_gpu", title="The step of every method on the GPU", save=save)


if __name__ == "__main__":
    main()
