"""A plan on a real Ray cluster of two nodes: nodes and drivers are killed, and the nodes may have no common disk."""

import functools
import importlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.algorithms.erm import ERM
from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.table import Table
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.sweeps.launchers import ray as ray_module
from messi.sweeps.launchers.common import sent_files
from messi.sweeps.launchers.ray import Ray
from messi.sweeps.plan import Outcome, Plan, PlannedAverage, PlannedRun

LOGS = """
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from messi import ERM

HERE = Path(__file__).parent

class Logs(ERM):
    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        log: str

    def loss(self, batch):
        handler = signal.getsignal(signal.SIGTERM)
        with (HERE / self.config.log).open("a") as log:
            log.write(f"{batch.step} ")
        # The first signal to a run restores the handler that was set before it.
        while batch.step in (7, 9) and not (HERE / "open").exists() and signal.getsignal(signal.SIGTERM) is handler:
            time.sleep(0.01)
        return super().loss(batch)
"""
DRIVER = """
import json
import signal
from pathlib import Path
from messi.engine.config import RunConfig
from messi.sweeps.launchers.ray import Ray
from messi.sweeps.plan import Plan, PlannedRun

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
config = RunConfig.from_dict(json.loads({config!r}), files=[{file!r}])
launcher = Ray(address={address!r}, shared_disk={shared_disk!r}, send_every=0.1)
launcher.launch(Plan(Path({folder!r}), [PlannedRun({{"seed": 0}}, config)]))
"""
COMPARED = ("run.json", "records.jsonl", "model.safetensors", "result.json", "seen.safetensors")
EVERY_STEP = list(range(1, 13))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a head and a second node with one CPU each; their messi has its own home."""
    pytest.importorskip("ray")
    cluster_utils = importlib.import_module("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESSI_HOME", str(tmp_path_factory.mktemp("node")))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        arguments = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
        on_sigterm = signal.getsignal(signal.SIGTERM)
        started = cluster_utils.Cluster(initialize_head=True, head_node_args=arguments)
        started.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        yield started
        started.shutdown()
        signal.signal(signal.SIGTERM, on_sigterm)


@pytest.fixture
def connected(cluster: Any) -> Iterator[Any]:
    """Connect to the cluster for one test."""
    ray = importlib.import_module("ray")
    on_sigterm = signal.getsignal(signal.SIGTERM)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()
    signal.signal(signal.SIGTERM, on_sigterm)


def planned(seed: int, **changes: object) -> PlannedRun:
    config = RunConfig(
        data=TwoSubsets(per_domain=40),
        target=("a1",),
        algorithm=ERM.Config(),
        training=TrainingConfig(steps=12, evaluate_every=4),
        seed=seed,
    )
    return PlannedRun({"seed": seed}, replace(config, **changes))  # type: ignore[arg-type]


def logging_run(folder: Path, seed: int) -> PlannedRun:
    """Return a run that logs its steps, and waits in steps 7 and 9 until it is stopped or a file exists."""
    (folder / "logs.py").write_text(LOGS)
    return planned(seed, algorithm=ALGORITHMS.config(str(folder / "logs.py"))(log=f"log{seed}"))


def steps(folder: Path, seed: int) -> list[int]:
    log = folder / f"log{seed}"
    return [int(step) for step in log.read_text().split()] if log.exists() else []


def has_taken_step_7(folder: Path, before: int) -> bool:
    """Return whether a run has begun step 7 or a later one since there were ``before`` steps in the log."""
    return any(step >= 7 for step in steps(folder, 0)[before:])


def until(condition: Callable[[], bool], process: "subprocess.Popen[bytes] | None" = None) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert process is None or process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


def assert_equal_to_a_run_alone(plan: Plan, one: PlannedRun, alone: Path) -> None:
    run(one.config, out=alone, device="cpu")
    for name in COMPARED:
        assert (plan.path(one) / name).read_bytes() == (alone / name).read_bytes(), name


def work_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the nodes look for relative paths in a folder that does not exist, as on a machine without this disk."""
    monkeypatch.setattr(ray_module, "Path", SimpleNamespace(cwd=lambda: Path("/nowhere")))


def test_runs_have_the_bits_of_a_local_plan_and_failures_their_reasons(tmp_path: Path, connected: Any) -> None:
    plan, ended = Plan(tmp_path / "plan", [planned(0), planned(1, target=("nowhere",)), planned(2)]), list[Outcome]()
    Ray().launch(plan, ended.append)
    assert [outcome.state for outcome in plan.outcomes()] == ["done", "failed", "done"]
    assert sorted(int(outcome.labels["seed"]) for outcome in ended) == [0, 1, 2]
    assert "nowhere" in plan.outcomes()[1].reason
    assert sorted(place.name for place in plan.folder.iterdir()) == ["failed", "runs"]
    for seed in (0, 2):
        assert_equal_to_a_run_alone(plan, planned(seed), tmp_path / f"alone{seed}")


def test_nodes_without_the_disk_receive_data_and_models_and_send_runs_back(
    tmp_path: Path, connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All paths are relative, and so exist for the driver only."""
    labels, domains = np.arange(120) % 2, np.repeat(["a1", "b1", "c1"], 40)
    inputs = np.random.default_rng(0).normal(size=(120, 8))
    np.savez(tmp_path / "data.npz", inputs=inputs, labels=labels, domains=domains)
    first = planned(0, data=Arrays(path="data.npz"), split_seed=0)
    later = [planned(seed, data=Arrays(path="data.npz"), start=first.name, split_seed=0) for seed in (1, 2)]
    average = PlannedAverage({"seed": "average"}, later, "uniform")
    plan = Plan(Path("plan"), [first, *later, average])
    with monkeypatch.context() as patch:
        work_elsewhere(patch)
        for stage in plan.stages():
            Ray(send_every=1000).launch(stage)
    assert [outcome.state for outcome in plan.outcomes()] == ["done"] * 4, [o.reason for o in plan.outcomes()]
    local = Plan(Path("local"), plan.runs)
    for one in (first, *later):
        assert_equal_to_a_run_alone(plan, one, local.path(one))


def test_a_stopped_or_killed_driver_is_repeated_to_the_same_bits(tmp_path: Path, cluster: Any, connected: Any) -> None:
    """First Ctrl-C, which sends the checkpoint back; then a kill, after which the node's process stops by itself."""
    one = logging_run(tmp_path, 0)
    plan = Plan(tmp_path / "plan", [one])
    for number, shared_disk in ((signal.SIGINT, "no"), (signal.SIGKILL, "yes")):
        script = DRIVER.format(
            config=json.dumps(one.config.to_dict()),
            file=str(tmp_path / "logs.py"),
            address=cluster.address,
            folder=str(plan.folder),
            shared_disk=shared_disk,
        )
        before = len(steps(tmp_path, 0))
        process = subprocess.Popen([sys.executable, "-c", script])
        until(functools.partial(has_taken_step_7, tmp_path, before), process)
        process.send_signal(number)
        assert process.wait(timeout=60) != 0
        assert plan.outcome(one).state == "started"
    (tmp_path / "open").touch()
    Ray().launch(plan)
    assert [outcome.state for outcome in plan.outcomes()] == ["done"]
    assert_equal_to_a_run_alone(plan, one, tmp_path / "alone")
    assert steps(tmp_path, 0)[:8] == EVERY_STEP[:8], "the first driver's checkpoint, of step 7, came back"


def test_a_process_keeps_its_handler_of_sigterm(tmp_path: Path, cluster: Any) -> None:
    before = signal.getsignal(signal.SIGTERM)
    Ray(address=cluster.address).launch(Plan(tmp_path, [planned(0)]))
    assert signal.getsignal(signal.SIGTERM) == before


def test_ray_must_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MessiError, match=r"Ray is not installed; install it with: pip install 'messi-dg\[ray\]'\."):
        Ray().launch(Plan(tmp_path, [planned(0)]))


@pytest.mark.parametrize(
    ("greeting", "reason"),
    [(None, ".*refused"), (b"", "timed out"), (b"HTTP/1.1 400 Bad Request", "what answers there is not Ray")],
)
def test_an_unreachable_cluster_is_named(
    greeting: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may listen at the address, or something that says nothing, or something else than Ray."""
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_module, "_CONNECT_WITHIN", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if greeting is None:
            server.close()
        else:
            threading.Thread(target=lambda: answer(server, greeting), daemon=True).start()
        with pytest.raises(MessiError, match=rf"^The Ray cluster {address} cannot be reached \({reason}\); check --ad"):
            Ray(address=address).launch(Plan(tmp_path, [planned(0)]))


def answer(server: socket.socket, greeting: bytes) -> None:
    connection, _ = server.accept()
    connection.sendall(greeting)
    time.sleep(2)
    connection.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpus_per_run": 0.5}, r"asks for 0.5 GPUs, but no node .* \(at most 0 GPUs\); lower --gpus-per-run, or"),
        ({"cpus_per_run": 2}, r"asks for 2 CPUs, but no node .* \(at most 1 CPUs\); lower --cpus-per-run, or"),
    ],
)
def test_resources_that_no_node_has_are_named(
    options: dict[str, Any], words: str, tmp_path: Path, connected: Any
) -> None:
    with pytest.raises(MessiError, match=words):
        Ray(**options).launch(Plan(tmp_path / "plan", [planned(0)]))


def test_a_folder_or_data_that_a_node_cannot_have_is_named(
    tmp_path: Path, connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table.csv").write_text("path,label,domain\n")
    work_elsewhere(monkeypatch)
    monkeypatch.setattr(sent_files, "_MOST_DATA", 10)
    for run_, options, words in (
        (
            planned(0),
            {"shared_disk": "yes"},
            "does not see the folder .*plan; choose a folder on a disk that all",
        ),
        (
            planned(0, data=Arrays(path="table.csv")),
            {},
            "table.csv is not on every node .* 18 bytes are too large",
        ),
        (planned(0, data=Table(path="table.csv")), {}, "The table table.csv is not on every node .* with --root"),
    ):
        with pytest.raises(MessiError, match=words):
            Ray(**options).launch(Plan(Path("plan"), [run_]))  # type: ignore[arg-type]


@pytest.mark.parametrize("gpus", [-1, 1.5])
def test_the_number_of_gpus_is_checked(gpus: float) -> None:
    with pytest.raises(MessiError, match=f"gpus_per_run must be at (least 0|most 1 or a whole number), but is {gpus}"):
        Ray(gpus_per_run=gpus)


def test_the_room_of_nodes_is_counted_in_whole_runs() -> None:
    node = {"CPU": 8.0, "GPU": 2.0}
    counts = [
        ray_module._fitting(node, cpus, gpus) for cpus, gpus in ((1, 0), (3, 0), (1, 1), (1, 2), (1, 0.3), (2, 0.1))
    ]
    assert counts == [8, 2, 2, 1, 6, 4]


def test_a_run_of_a_lost_node_resumes_on_another_node(tmp_path: Path, cluster: Any, connected: Any) -> None:
    """Two runs wait in step 7, one on each node, until one node is gone. No test may need both nodes after this one."""
    runs = [logging_run(tmp_path, seed) for seed in (0, 1)]
    plan = Plan(tmp_path / "plan", runs)

    def lose_a_node() -> None:
        try:
            until(lambda: all((plan.path(one) / "last.safetensors").exists() for one in runs))
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            until(lambda: sum(node["Alive"] for node in connected.nodes()) == 1)
        finally:
            (tmp_path / "open").touch()  # otherwise a failure would be a hang

    thread = threading.Thread(target=lose_a_node)
    thread.start()
    Ray(shared_disk="no", send_every=0.1).launch(plan)
    thread.join()
    assert [outcome.state for outcome in plan.outcomes()] == ["done", "done"]
    taken = sorted((steps(tmp_path, seed) for seed in (0, 1)), key=len)
    assert taken[0] == EVERY_STEP
    assert taken[1] == [*range(1, 8), *range(5, 13)], "the checkpoint of step 4 came back before the node was lost"
    for seed, one in enumerate(runs):
        assert_equal_to_a_run_alone(plan, one, tmp_path / f"alone{seed}")
