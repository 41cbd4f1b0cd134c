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
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from messi.algorithms.common.base import ALGORITHMS, Algorithm, build
from messi.cli.main import main
from messi.core import heartbeat
from messi.core.batch import Batch, LossTerms, Task
from messi.core.errors import MessiError
from messi.core.processes import Processes, join, leave
from messi.core.seeding import deterministic
from messi.engine import loop
from messi.engine.capture import Updater
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import Encoder, EncoderConfig
from tests.algorithms.test_contract import IMAGES, separable

STEPS = 20
EPSILON = 1e-3
"""Adam's. With its usual 1e-8 a gradient of nothing but rounding errors becomes a step of full length; with this one
small gradients are followed in proportion, so that one of a wrong size, to which Adam is otherwise blind, is seen too.
"""
IMAGES |= dict.fromkeys(("gmoe", "omoe", "dynmoe"), ("test_vit", (3, 32, 32)))  # smaller, hence faster
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
    for optimizer in stepper.optimizers.values():
        for group in optimizer.param_groups:
            group["eps"] = EPSILON
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


def methods(answer: Path, per_domain: int, *names: str) -> None:
    """Answer with the largest differences between several processes and one: of the losses, and of the weights."""
    processes = join()
    assert processes
    found = {}
    with deterministic():
        for variant in names or VARIANTS:
            losses, state = trained(variant, processes, per_domain)
            processes.require_same(list(state.values()), variant)
            if processes.leads:
                expected_losses, expected = trained(variant, None, per_domain)
                found[variant] = [
                    max(difference(a, b) for a, b in zip(losses, expected_losses, strict=True)),
                    difference(state, expected),
                ]
    if processes.leads:
        answer.write_text(json.dumps(found))
    leave()


def difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """Return the largest difference between tensors of the same name."""
    assert left.keys() == right.keys()
    return max(float((left[name].double() - right[name].double()).abs().max()) for name in left)


def traffic(answer: Path, variant: str) -> None:
    """Answer with the number and the bytes of the messages of one step, by operation."""
    processes = join()
    assert processes
    calls, sizes = Counter[str](), Counter[str]()

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(Processes, name)

        def call(self: Processes, given: Any, *more: Any, **options: Any) -> Any:
            calls[name] += 1
            sizes[name] += sum(one.nbytes for one in given) if isinstance(given, list) else given.nbytes
            return real(self, given, *more, **options)

        return call

    algorithm = make(variant).train()
    update = Updater(
        algorithm,
        AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0.0), processes),
        torch.device("cpu"),
        processes=processes,
    )
    with ExitStack() as patches:
        for name in ("gather", "sum", "begin_mean"):
            patches.enter_context(mock.patch.object(Processes, name, counted(name)))
        update(part_of(separable(VARIANTS[variant][0], 1, per_domain=4), algorithm, processes))
    encoder = sum(
        p.nbytes for module in algorithm.modules() if isinstance(module, Encoder) for p in module.parameters()
    )
    if processes.leads:
        answer.write_text(json.dumps([calls, sizes, encoder]))
    leave()


def train(_answer: Path, fault: str, *options: str) -> None:
    """Do a run; a fault such as "kill 1 7" befalls process 1 in step 7."""
    heartbeat._LIMIT = 3.0  # a test should not wait for longer
    heartbeat._BEFORE["step"] = 2
    if fault:
        how, rank, step = fault.split()
        if rank == os.environ["RANK"]:
            inflict(how, int(step))
    sys.exit(main(["train", *options]))


def inflict(how: str, wanted: int) -> None:
    """Let something happen to this process in a step, or let it hang in the evaluation after a step."""
    if how == "stall":
        measure = loop.measure

        def stall(parts: Any, role: Any, step: int, **options: Any) -> Any:
            return threading.Event().wait() if step == wanted else measure(parts, role, step, **options)

        loop.measure = stall
        return
    real = Updater.__call__

    def update(self: Updater, batch: Batch) -> LossTerms:
        if batch.step == wanted:
            if how == "hang":
                threading.Event().wait()
            elif how == "fail":
                raise MessiError("This process has a problem.")
            else:
                os.kill(os.getpid(), {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "stop": signal.SIGTERM}[how])
        return real(self, batch)

    Updater.__call__ = update  # type: ignore[method-assign]


JOBS: dict[str, Callable[..., Any]] = {"methods": methods, "traffic": traffic, "train": train}


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
                with end_of_process():
                    JOBS[job](Path(answer), *arguments)
            children.append(child)
        sys.stdout.write(f"{json.dumps(ends(children))}\n")
        sys.stdout.flush()


@contextmanager
def end_of_process() -> Iterator[None]:
    """End a fork, whatever happens in it."""
    code = 1
    try:
        yield
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 (the parent must not continue twice)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def ends(children: list[int]) -> list[int]:
    """Return the exit codes; a frozen process is killed when all others have ended."""
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        child, status = os.waitpid(-1, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            codes[child] = os.waitstatus_to_exitcode(status)
        if len(codes) == len(children) - 1 and os.WIFSTOPPED(status) is False:
            for other in set(children) - codes.keys():
                with suppress(ProcessLookupError):
                    if frozen(other):
                        os.kill(other, signal.SIGKILL)
    return [codes[child] for child in children]


def frozen(process: int) -> bool:
    """Return whether a process is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


if __name__ == "__main__":
    serve()
