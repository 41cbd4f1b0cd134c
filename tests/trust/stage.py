"""A folder with small data, runs, a plan and stores, which is restored after every damage."""

import io
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas
import pytest
import timm
from PIL import Image
from safetensors.torch import save_file

from messi.cli.main import main
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.interrupt import Interrupted
from messi.engine.run import run
from messi.evaluation.model import load
from messi.experiments.common import ablation
from messi.experiments.common.benchmarks import Benchmark
from messi.serving.known_domains import known_domains
from messi.sweeps.launchers.local import Local
from messi.sweeps.one_run import do_run
from messi.sweeps.plan import Outcome, Plan

_SCHEDULE = ["--steps", "6", "--evaluate-every", "2", "--batch-per-domain", "4", "--log-every", "2", "--device", "cpu"]
_METHOD = ("--recipe", "paper", "--num-experts", "2")
TRAIN = ["train", "--data", "images", "--target", "paint", "--backbone", "tiny_cnn", *_METHOD, *_SCHEDULE]
TRAIN_ROWS = ["train", "--data", "rows.csv", "--target", "2", *_METHOD, *_SCHEDULE]
TRAIN_HEAD = ["train", "--data", "images", "--target", "paint", "--tune", "head", *_METHOD, *_SCHEDULE]
TRAIN_HEAD += ["--backbone", "test_vit", "--weights", "weights.safetensors", "--image-size", "32"]
TRAIN_FEATURES = ["train", "--data", "features.npz", "--target", "2", *_METHOD, *_SCHEDULE]
REPRODUCE = ["reproduce", "specialisation", "--scale", "small", "--out", "plan", "--devices", "cpu"]
COMPARE = ["compare", "--data", "features.npz", "--methods", "erm", "coral", "--seeds", "1", *_SCHEDULE[:-2]]
COMPARE += ["--devices", "cpu", "--out", "comparison", "--final"]
_EVIL = """from pathlib import Path
Path("canary").touch()
"""


@dataclass
class Stage:
    """A folder, and the undamaged content of all its files in memory."""

    root: Path
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Content and modification time by path."""
    folders: set[str] = field(default_factory=set)
    dirty: set[str] = field(default_factory=set)
    """Files that were damaged, even if their size and time are unchanged."""

    def keep(self) -> None:
        """Remember the present content of every file."""
        self.files = {
            str(path.relative_to(self.root)): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }
        self.folders = {f"{parent}/" for name in self.files for parent in Path(name).parents}

    def restore(self) -> None:
        """Restore every file with its time, and delete all others."""
        whole = set(self._sweep())
        for name in self.files.keys() - whole:
            content, time = self.files[name]
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            os.utime(path, ns=(time, time))
        self.dirty.clear()

    def damage(self, file: str, content: bytes) -> None:
        """Change the content of a file, but not its time, as a bad disk does."""
        self.dirty.add(file)
        path, time = self.root / file, self.files[file][1]
        path.write_bytes(content)
        os.utime(path, ns=(time, time))

    def _sweep(self, folder: str = "") -> Iterator[str]:
        """Yield the unchanged files; delete everything else."""
        for entry in list(os.scandir(self.root / folder)):
            name = f"{folder}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if f"{name}/" in self.folders:
                    yield from self._sweep(f"{name}/")
                else:
                    shutil.rmtree(entry.path)
            elif stat.S_ISREG(status.st_mode) and self._unchanged(name, status):
                yield name
            else:
                Path(entry.path).unlink()

    def _unchanged(self, name: str, status: os.stat_result) -> bool:
        if name not in self.files or name in self.dirty:
            return False
        content, time = self.files[name]
        return (status.st_size, status.st_mtime_ns) == (len(content), time)


@contextmanager
def staged(root: Path) -> Iterator[Stage]:
    """Create everything in a folder, which is the working folder inside the block."""
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        _shrink_plan(patch)
        patch.setenv("MESSI_HOME", str(root / "home"))
        os.chdir(root)
        try:
            _make_data(root)
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # a failure prints enough
                _make_runs()
            stage = Stage(root)
            stage.keep()
            yield stage
        finally:
            os.chdir(before)


def _make_data(root: Path) -> None:
    (root / "evil.py").write_text(_EVIL)
    rng = np.random.default_rng(0)
    rows = ["path,label,domain"]
    for folder, shade in (("images", 0), ("others", 40)):
        for domain in ("photo", "sketch", "paint"):
            for label, bright in (("cat", 0), ("dog", 90)):
                for number in range(5):
                    place = root / folder / domain / label / f"{number}.png"
                    place.parent.mkdir(parents=True, exist_ok=True)
                    pixels = rng.integers(0, 100, (12, 16, 3)) + bright + shade
                    Image.fromarray(pixels.astype(np.uint8)).save(place)
                    rows.append(f"{place.relative_to(root)},{label},{domain}")
    (root / "table.csv").write_text("\n".join(rows[:31]) + "\n")
    save_file(timm.create_model("test_vit", num_classes=0).state_dict(), root / "weights.safetensors")
    features = rng.normal(size=(60, 5)).astype(np.float32)
    np.savez(root / "features.npz", inputs=features, labels=np.arange(60) % 2, domains=np.arange(60) % 3)
    frame = pandas.DataFrame(features[:, :3].round(3).astype(float), columns=["a", "b", "c"])
    frame = frame.mask(frame > 1.5).assign(
        kind=["x", "y", "", "true"] * 15, domain=np.arange(60) % 3, label=np.arange(60) % 2
    )
    frame.to_csv(root / "rows.csv", index=False)
    frame.assign(vector=list(features)).to_parquet(root / "rows.parquet")


def _make_runs() -> None:
    """Train two runs that differ only in the seed, three on features, two with frozen encoders and half a run.

    Decode two stores; run two plans; encode what a service of two runs compares inputs with.
    """
    for arguments in (
        [*TRAIN, "--out", "runs/done"],
        [*TRAIN, "--out", "runs/other", "--seed", "1"],
        [*TRAIN_FEATURES, "--out", "runs/features"],
        [*TRAIN_FEATURES, "--out", "runs/other_features", "--seed", "1"],
        [*TRAIN_ROWS, "--out", "runs/rows"],
        [*TRAIN_HEAD, "--out", "runs/head"],
        [*TRAIN_HEAD, "--data", "others", "--out", "runs/other_head"],
        ["data", "prepare", "others"],
        ["data", "prepare", "table.csv"],
        REPRODUCE,
        COMPARE,
    ):
        assert main(list(arguments)) == 0, arguments
    for name in ("features", "other_features"):
        known_domains(Path("runs", name), load(Path("runs", name)))
    with pytest.raises(Interrupted):
        run(config_of([*TRAIN]), out="runs/half", device="cpu", observers=[_Stopper()])


def config_of(arguments: list[str]) -> RunConfig:
    """Return the config of a ``messi train`` command."""
    from messi.cli.train import parse  # noqa: PLC0415 (tests of imports inspect that module)

    return parse(arguments[1:])[0]


class _Stopper:
    """Stops a run after three steps, between two evaluations and with an unwritten record."""

    def started(self, step: int, steps: int) -> None: ...

    def stepped(self, step: int) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    def logged(self, step: int, terms: object) -> None: ...

    def evaluated(self, step: int, accuracy: float) -> None: ...

    def finished(self) -> None: ...


def _shrink_plan(patch: pytest.MonkeyPatch) -> None:
    """Reduce a plan to two runs of half a second in this process: another process would load torch for every damage."""
    tiny = Benchmark("two_subsets", "Two subsets", TwoSubsets(per_domain=30), {"b2": "B"})
    patch.setattr(ablation, "SMALL", tiny)
    patch.setattr(ablation, "SMALL_BACKBONE", "identity")
    patch.setattr(ablation, "SMALL_TRAINING", TrainingConfig(steps=4, evaluate_every=4, batch_per_domain=8))
    patch.setattr(Local, "launch", _launch_here)


def _launch_here(_local: Local, plan: Plan, on_end: Callable[[Outcome], None]) -> None:
    for planned in plan.unfinished():
        plan.forget_failure(planned)
        on_end(plan.record_end(planned, do_run(planned.to_dict(), plan.path(planned), "cpu")))
