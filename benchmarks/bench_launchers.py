"""Time of a plan of short runs with each launcher, on the same cores.

    python benchmarks/bench_launchers.py [--runs 200] [--save]

A run takes about two seconds on one core: the number of steps is measured first. Before anything is timed, the files of
some runs are compared between launchers. The times include everything: processes that start, a local Ray cluster that
starts and ends, and loading torch. They say something only on a machine that does nothing else, so the table states the
load before each plan. Slurm is timed if a cluster answers, such as the one that
``python -m tests.slurm_cluster python benchmarks/bench_launchers.py`` starts on this machine.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from harness import show
from messi.algorithms.erm import ERM
from messi.core.info import version
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.launchers.local import Local
from messi.sweeps.launchers.ray import Ray
from messi.sweeps.launchers.slurm import Slurm
from messi.sweeps.plan import Plan, PlannedRun

CORES = len(os.sched_getaffinity(0))
LAUNCHERS: dict[str, Launcher] = {
    "local": Local(jobs=CORES, devices=("cpu",)),
    "ray": Ray(gpus_per_run=0, at_a_time=CORES),
    "ray, run folders sent back": Ray(gpus_per_run=0, at_a_time=CORES, shared_disk="no"),
}
if shutil.which("sinfo") and subprocess.run(["sinfo"], capture_output=True, check=False).returncode == 0:  # noqa: S607
    slurm = Slurm(gpus_per_run=0, at_a_time=CORES)
    LAUNCHERS |= {"slurm": slurm, "slurm, 25 runs per job": replace(slurm, runs_per_job=25)}
SECONDS, PROBE_STEPS, COMPARED = 2.0, 400, ("run.json", "records.jsonl", "model.safetensors", "result.json")


def config(steps: int) -> RunConfig:
    training = TrainingConfig(steps=steps, evaluate_every=steps)
    return RunConfig(data=TwoSubsets(per_domain=200), target=("a1",), algorithm=ERM.Config(), training=training)


def steps_of_two_seconds(folder: Path) -> int:
    torch.set_num_threads(1)
    spent = []
    for number, steps in enumerate((1, 1, PROBE_STEPS)):  # the first one also loads modules
        start = time.perf_counter()
        run(config(steps), out=folder / str(number), device="cpu")
        spent.append(time.perf_counter() - start)
    return max(1, round((SECONDS - spent[1]) / (spent[2] - spent[1]) * PROBE_STEPS))


def launch(launcher: Launcher, folder: Path, steps: int, runs: int) -> tuple[Plan, float]:
    plan = Plan(folder, [PlannedRun({"seed": seed}, replace(config(steps), seed=seed)) for seed in range(runs)])
    start = time.perf_counter()
    launcher.launch(plan, lambda _outcome: None)
    seconds = time.perf_counter() - start
    assert all(outcome.state == "done" for outcome in plan.outcomes())
    return plan, seconds


def assert_equal_results(folder: Path) -> None:
    plans = [launch(one, folder / name, 20, 2 * CORES)[0] for name, one in LAUNCHERS.items()]
    for planned in plans[0].runs:
        for name in COMPARED:
            assert len({(plan.path(planned) / name).read_bytes() for plan in plans}) == 1, name


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the launchers.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--save", action="store_true", help="save the table under benchmarks/results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert_equal_results(folder / "equal")
        steps = steps_of_two_seconds(folder / "probe")
        rows: list[tuple[str, float, float]] = []
        for title, launcher in LAUNCHERS.items():
            load = os.getloadavg()[0]
            rows.append((title, launch(launcher, folder / title, steps, asked.runs)[1], load))
    about = (
        f"{asked.runs} runs of {steps} steps, about {SECONDS:g} s each, {CORES} at a time on {CORES} cores; messi "
        f"{version()}, torch {torch.__version__}."
    )
    lines = [
        about,
        "",
        "| launcher | time, s | relative to local | load before |",
        "|---|---:|---:|---:|",
        *(f"| {name} | {seconds:.1f} | {seconds / rows[0][1]:.3f} | {load:.2f} |" for name, seconds, load in rows),
    ]
    show("\n".join(lines) + "\n", name="launchers_cpu", title="Overhead of the launchers", save=asked.save)


if __name__ == "__main__":
    main()
