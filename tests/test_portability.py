"""messi without the modules, signals and open flags that macOS or Windows lack, and without Triton.

A subprocess hides these names, imports every module, trains on a CPU and writes the report. The test cannot cover the
behaviour of Windows itself: how it locks files, that it refuses to replace or remove an open file, and its path
separators and file names. ``core.lock`` uses filelock, which is tested on all three systems; the rest is untested.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

WITHOUT = """
import os, signal, sys

MODULES = {"fcntl", "prctl", "resource", "pwd", "grp", "termios", "triton"}
NAMES = {
    os: ["O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY", "sysconf", "fork", "sendfile", "sync", "getuid", "mkfifo"],
    signal: ["SIGPIPE", "SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGCHLD"],
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for module, names in NAMES.items():
    for name in names:
        delattr(module, name)
"""

IMPORTS = """
import importlib, pkgutil, messi

names = [module.name for module in pkgutil.walk_packages(messi.__path__, "messi.")]
assert len(names) > 150, len(names)
for name in names:
    if not name.endswith(("kernels", "__main__")):  # Triton kernels run only on a GPU
        importlib.import_module(name)
assert not MODULES.intersection(sys.modules), MODULES.intersection(sys.modules)
"""

COMMANDS = """
from messi.cli.main import main

root, out = sys.argv[1:]
train = "--target photo --backbone small_cnn --no-pretrained --augmentation none --steps 4 --evaluate-every 2".split()
for arguments in (
    ["train", "--data", root, "--out", out, "--device", "cpu", *train],
    ["train", "--data", root, "--out", out, "--device", "cpu", *train],
    ["evaluate", out, "--device", "cpu"],
    ["report", out],
    ["verify", out],
    ["info"],
):
    assert main(arguments) == 0, arguments
"""


def run(code: str, *arguments: str) -> str:
    environment = os.environ | {"TRITON_INTERPRET": "", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_importing_training_and_reporting_need_no_unix(make_folder: Callable[..., Path], tmp_path: Path) -> None:
    printed = run(IMPORTS + COMMANDS, str(make_folder()), str(tmp_path / "run"))
    assert (tmp_path / "run" / "report.html").exists(), "written by train"
    assert (tmp_path / "report.html").exists(), "written by report"
    assert "already" in printed, "the second command found the run finished"
    assert not list(tmp_path.rglob("*.tmp"))
