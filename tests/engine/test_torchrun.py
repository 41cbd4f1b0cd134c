"""Runs of several processes on this machine, started by torchrun, and on two hosts with a network between them."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple

import pytest

from messi.cli.main import main
from messi.core.tensorfile import read_tensors

from .test_parallel import OPTIONS, TOLERANCE
from .test_resume import contents

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
PATIENCE = 120
"""Seconds."""
SCRIPT = """
import atexit, os, sys

def names():
    return [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]

atexit.register(lambda: print("at the end", *(name for name in names() if "gloo" in name), flush=True))  # after messi's

import messi

config = messi.RunConfig(data=messi.TwoSubsets(), target=("b2",), training=messi.TrainingConfig(steps=3))
result = messi.run(config, out=sys.argv[1], device="cpu")
assert any("gloo" in name for name in names())
print("trained", result.selected_step, flush=True)
"""


KILLED = """
import os, signal, sys

from messi.core.processes import Processes
from messi.cli.main import main

out, rank, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
agree = Processes.agree

def agree_or_die(self, step, *, stop):
    answer = agree(self, step, stop=stop)
    if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], answer[0]) == (rank, "0", last):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

Processes.agree = agree_or_die
sys.exit(main(["train", *sys.argv[4:], "--out", out]))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main(["train", *OPTIONS, "--out", str(folder)]) == 0
    return folder


def assert_same_weights(run: Path, alone: Path) -> None:
    one, other = (read_tensors(folder / "model.safetensors")[0] for folder in (run, alone))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert (tensor.double() - other[name].double()).abs().max() < TOLERANCE, name


def test_processes_of_torchrun_train_the_model_of_one(alone: Path, tmp_path: Path) -> None:
    command = [*TORCHRUN, "--nproc-per-node", "2", "-m", "messi", "train", *OPTIONS, "--out", str(tmp_path / "run")]
    ended = subprocess.run(command, check=False, stdout=PIPE, stderr=STDOUT, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stdout
    assert_same_weights(tmp_path / "run", alone)


def test_no_thread_of_the_group_outlives_a_script(tmp_path: Path) -> None:
    """Such a thread sometimes aborted the process at its end, after everything had been written."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [*TORCHRUN, "--nproc-per-node", "2", str(script), str(tmp_path / "run")]
    ended = subprocess.run(command, check=False, stdout=PIPE, stderr=STDOUT, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("trained 3\n") == 2, ended.stdout
    assert [line for line in ended.stdout.splitlines() if line.startswith("at the end")] == ["at the end"] * 2


def test_torchrun_restarts_a_killed_process_and_the_run_has_the_same_bits(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    for rank, last in (("none", 0), ("0", 8), ("1", 11)):
        command = [*TORCHRUN, "--nproc-per-node", "2", "--max-restarts", "1", str(script), str(tmp_path / rank)]
        command += [rank, str(last), *OPTIONS]
        ended = subprocess.run(command, check=False, stdout=PIPE, stderr=STDOUT, text=True, timeout=PATIENCE)
        assert ended.returncode == 0, ended.stdout
        assert ("exitcode: -9" in ended.stdout) == (rank != "none"), ended.stdout
        assert contents(tmp_path / rank) == contents(tmp_path / "none")


class Host(NamedTuple):
    """A network namespace."""

    prefix: list[str]
    """Starts a command on the host."""
    address: str
    device: str

    def cut(self) -> None:
        """Disconnect the host."""
        _ip("-n", self.prefix[-1], "link", "set", self.device, "down")


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Yield two hosts with a network between them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("only root can make network namespaces, with iproute2")
    names = [f"messi{os.getpid()}{end}" for end in "ab"]
    made = [
        Host(["ip", "netns", "exec", name], f"10.77.0.{number}", f"v{os.getpid()}{number}")
        for number, name in enumerate(names, start=1)
    ]
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        first, second = (host.device for host in made)
        _ip("link", "add", first, "netns", names[0], "type", "veth", "peer", second, "netns", names[1])
        for name, host in zip(names, made, strict=True):
            _ip("-n", name, "addr", "add", f"{host.address}/24", "dev", host.device)
            _ip("-n", name, "link", "set", host.device, "up")
        yield made


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def test_two_hosts_train_the_model_of_one(hosts: Sequence[Host], alone: Path, tmp_path: Path) -> None:
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts[0].address}:29500", "--rdzv-id", "messi"]
    with ExitStack() as stack:
        started = []
        for number, host in enumerate(hosts):
            own = ["--local-addr", host.address, "--rdzv-conf", f"is_host={int(not number)}"]
            train = ["-m", "messi", "train", *OPTIONS, "--out", str(tmp_path / f"run{number}")]
            command = [*host.prefix, *TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", *meeting, *own, *train]
            environment = os.environ | {"GLOO_SOCKET_IFNAME": host.device}
            started.append(subprocess.Popen(command, env=environment, stdout=PIPE, stderr=STDOUT, text=True))
            stack.callback(started[-1].kill)
        outputs = [process.communicate(timeout=PATIENCE)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert_same_weights(tmp_path / "run0", alone)
    assert not (tmp_path / "run1").exists(), "only the first host needs the run folder"


def test_when_the_network_is_cut_both_hosts_name_the_other_and_stop(hosts: Sequence[Host], tmp_path: Path) -> None:
    address = {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
    endless = [*OPTIONS, "--steps", "100000", "--evaluate-every", "100", "--out", str(tmp_path / "run")]
    with ExitStack() as stack:
        started = []
        for rank, host in enumerate(hosts):
            environment = os.environ | address | {"RANK": str(rank), "GLOO_SOCKET_IFNAME": host.device}
            command = [*host.prefix, sys.executable, "-m", "messi", "train", *endless]
            started.append(subprocess.Popen(command, env=environment, stdout=PIPE, stderr=STDOUT, text=True))
            stack.callback(started[-1].kill)
        assert started[0].stdout is not None
        while "step 100/" not in started[0].stdout.readline():
            assert started[0].poll() is None
        hosts[0].cut()
        start = time.monotonic()
        outputs = [process.communicate(timeout=PATIENCE)[0] for process in started]
    assert time.monotonic() - start < 30
    assert [process.returncode for process in started] == [2, 2], outputs
    for rank, output in enumerate(outputs):
        assert f"Process {1 - rank} of 2 " in output
        assert "so the others have stopped" in output
