"""Jobs in several processes; each is a fork of this one, because importing torch again would take longer than the job.

Every line of input is a request, a JSON list of a job, the number of processes, a file for the answer and the arguments
of the job. The exit codes of the processes are printed as a JSON list.
"""

import dataclasses
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed

from messi.algorithms.common.base import ALGORITHMS, Algorithm, build
from messi.cli.main import main
from messi.core.batch import Batch, LossTerms, Task
from messi.core.processes import Processes, join, leave
from messi.core.seeding import deterministic
from messi.engine.capture import Updater
from messi.engine.loop import take_step
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig
from tests.algorithms.test_contract import IMAGES, separable

STEPS = 20
ANNEALED = {"irm", "vrex", "fishr"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {"anneal_steps": 10} if name in ANNEALED else {}) for name in ALGORITHMS.names()},
    "messi, memory": ("messi", {"memory": 40, "balance_momentum": 0.5, "load_rate": 0.01}),
    "messi, dropout": ("messi", {"expert_dropout": 0.5}),
    "dann, second order": ("dann", {"gradient_penalty": 1.0, "discriminator_dropout": 0.5}),
    "gmoe, dropout": ("gmoe", {"expert_dropout": 0.5, "drop_path": 0.5}),
    "erm, sam": ("erm", {}),
    "messi, sagm": ("messi", {}),
    "mldg, sam": ("mldg", {}),
    "erm, dropout": ("erm", {}),
    "erm, probe": ("erm", {}),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "erm, sam": {"flatness": "sam"},
    "messi, sagm": {"flatness": "sagm", "sagm_alpha": 0.001},
    "mldg, sam": {"flatness": "sam"},
    "erm, probe": {"probe_steps": 10},
}
BACKBONES = {"erm, dropout": ("residual_mlp", (5,))}


def make(variant: str) -> Algorithm:
    """Return a method with the same weights in every process."""
    torch.manual_seed(0)
    name, settings = VARIANTS[variant]
    backbone, shape = BACKBONES.get(variant, IMAGES.get(name, ("mlp", (5,))))
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    return build(
        ALGORITHMS.config(name)(**settings),
        task=Task(input_shape=shape, num_classes=2, num_domains=3),
        encoder=encoder,
    )


def trained(variant: str, processes: Processes | None, per_domain: int) -> tuple[list[LossTerms], dict[str, Tensor]]:
    """Take some steps and return their losses and the state after them."""
    algorithm = make(variant).train()
    options = {"learning_rate": 1e-3, "weight_decay": 0.0, **OPTIMIZERS.get(variant, {})}
    stepper = AdamStepper(algorithm, OptimizerConfig(**options), processes)
    update = Updater(algorithm, stepper, torch.device("cpu"), processes=processes)
    losses = []
    for step in range(1, STEPS + 1):
        batch = separable(VARIANTS[variant][0], step, per_domain=per_domain)
        torch.manual_seed(step)
        losses.append({name: term.clone() for name, term in update(part_of(batch, algorithm, processes)).items()})
    return losses, {**algorithm.state_dict(), **dict(algorithm.named_buffers())}


def part_of(batch: Batch, algorithm: Algorithm, processes: Processes | None) -> Batch:
    """Return what the loader gives a process: all labels, and its own inputs if they can be divided."""
    if processes is None or algorithm.whole_inputs or len(batch) % processes.size:
        return batch
    return dataclasses.replace(batch, inputs=batch.inputs.chunk(processes.size)[processes.rank])


def methods(answer: Path, *names: str) -> None:
    """Answer with the largest difference between several processes and one, in losses and in weights."""
    processes = join()
    assert processes
    found = {}
    with deterministic():
        for variant in names or VARIANTS:
            for per_domain in (4, 5):  # the second cannot be divided by 2 or 4
                losses, state = trained(variant, processes, per_domain)
                processes.require_same([value for value in state.values()], variant)
                if processes.leads:
                    expected_losses, expected = trained(variant, None, per_domain)
                    pairs = [(a, b) for x, y in zip(losses, expected_losses, strict=True) for a, b in zip(x.values(), y.values(), strict=True)]
                    found[f"{variant}, {per_domain}"] = (
                        max(float((a - b).abs()) for a, b in pairs),
                        max(float((state[name].double() - value.double()).abs().max()) for name, value in expected.items() if value.numel()),
                    )
    if processes.leads:
        answer.write_text(json.dumps(found))
    leave()


JOBS: dict[str, Callable[..., Any]] = {"methods": methods}


def free_port() -> int:
    """Return a port that no process uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def serve() -> None:
    """Fork the processes of each request, and print how they ended."""
    for line in sys.stdin:
        job, size, answer, arguments = json.loads(line)
        port, children = free_port(), []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                output = os.open(f"{answer}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(output, 1)
                os.dup2(output, 2)
                JOBS[job](Path(answer), *arguments)
                os._exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        sys.stdout.write(f"{json.dumps(codes)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
