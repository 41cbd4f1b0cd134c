"""What taking part in a group costs: a step of one process with NCCL against a step without a group.

    python benchmarks/bench_parallel_gpu.py [--save]

The shape of PACS: 3 x 32 random images of 224 x 224. The one process of the group gathers its features and reduces its
gradients as one of many would; both kinds of steps are captured. First the weights after some steps must be equal to
the bit. Then both take turns in short stretches; a ratio is the median over the turns.
"""

import os
import statistics

import torch

from bench_step_gpu import DEVICE, METHODS, SMALL, TINY, TURNS, Contestant, make_batch
from harness import gpu, parse, show
from messi.algorithms.common.base import build
from messi.core.batch import Task
from messi.core.processes import Processes, join, leave
from messi.core.seeding import deterministic
from messi.engine.capture import Updater
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig

HELD_TO = 1.01


def contestant(method: str, backbone: str, processes: Processes | None) -> Contestant:
    torch.manual_seed(0)
    task = Task(input_shape=(3, 224, 224), num_classes=7, num_domains=3)
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    algorithm = build(METHODS[method], task=task, encoder=encoder).to(DEVICE)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=3e-5, weight_decay=0.0), processes)
    updater = Updater(algorithm, stepper, DEVICE, processes=processes)
    return Contestant(updater, make_batch(), list(algorithm.parameters()))


def main() -> None:
    options = parse(__doc__ or "")
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    processes = join()
    lines = [
        "| step, batch 96, deterministic, captured | alone, ms | group of one, ms | ratio |",
        "|---|---:|---:|---:|",
    ]
    worst = 0.0
    with deterministic():
        for backbone in (TINY, SMALL):
            for method in ("ERM", "MESSI-OT"):
                pair = [contestant(method, backbone, given) for given in (None, processes)]
                for one in pair:
                    one.milliseconds(8)
                    assert one.updater.captured
                assert all(map(torch.equal, pair[0].parameters, pair[1].parameters))
                turns = [[one.milliseconds() for one in pair] for _ in range(TURNS)]
                alone, grouped = (statistics.median(times) for times in zip(*turns, strict=True))
                ratio = statistics.median(turn[1] / turn[0] for turn in turns)
                worst = max(worst, ratio)
                lines.append(f"| {backbone}, {method} | {alone:.3f} | {grouped:.3f} | {ratio:.3f} |")
    leave()
    verdict = "holds" if worst <= HELD_TO else "is missed"
    result = "\n".join([*lines, "", f"The bound of {HELD_TO} {verdict}: at most {worst:.3f}.", "", gpu(), ""])
    show(result, name="parallel_gpu", title="A step in a group of one process", save=options.save)


if __name__ == "__main__":
    main()
