"""A real Slurm with one node, this machine, in a temporary folder.

Tests use it as a context manager; ``python -m tests.slurm_cluster COMMAND`` runs a command, such as a benchmark, in it.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
INSTALL = "Slurm is not installed; install it with: apt-get install slurm-wlm munge"
_CONF = """
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={ctld_port}
SlurmdPort={d_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d.log
ReturnToService=2
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES DefaultTime=30 MaxTime=60 State=UP GraceTime=60
PartitionName=urgent Nodes={host} PriorityTier=9 State=UP
"""


def missing() -> list[str]:
    """Return the programs of Slurm that are not installed."""
    search = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in DAEMONS if shutil.which(name, path=search) is None]


@contextmanager
def slurm_cluster(*, cpus: int = 3, hidden: Path | None = None) -> Iterator[Path]:
    """Start Slurm, let this process and its children use it, and stop it.

    ``cpus`` may be more than this machine has. Jobs of the partition ``urgent`` preempt those of ``all``, the default
    one, after a minute or as soon as they give way. ``hidden`` is a folder that the node cannot see; only root can hide
    it.
    """
    with tempfile.TemporaryDirectory(prefix="messi-slurm-") as name:
        folder = Path(name)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        ports = _free_ports()
        host, user = socket.gethostname().split(".")[0], subprocess.check_output(["id", "-un"], text=True).strip()
        text = _CONF.format(folder=folder, host=host, user=user, cpus=cpus, ctld_port=ports[0], d_port=ports[1])
        (folder / "slurm.conf").write_text(text)
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        before = os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        daemons: list[subprocess.Popen[bytes]] = []
        try:
            for number, command in enumerate(_commands(folder, hidden)):
                with (folder / f"{number}.out").open("wb") as log:
                    daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
                if number == 0:
                    _wait_for((folder / "munge.socket").exists, folder)
            _wait_for(_is_idle, folder)
            yield folder
        finally:
            subprocess.run(["scancel", f"--user={user}"], capture_output=True, check=False)
            _wait_for_jobs(10)
            for daemon in reversed(daemons):
                daemon.terminate()
            for daemon in reversed(daemons):
                daemon.wait(20)
            os.environ.pop("SLURM_CONF")
            if before is not None:
                os.environ["SLURM_CONF"] = before


def _commands(folder: Path, hidden: Path | None) -> list[list[str]]:
    program = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or name for name in DAEMONS}
    munged = [program["munged"], "--foreground", "--force", f"--key-file={folder}/munge.key"]
    munged += [f"--{part}={folder}/munge.{end}" for part, end in (("socket", "socket"), ("pid-file", "pid"))]
    munged += [f"--{part}={folder}/munge.{end}" for part, end in (("log-file", "log"), ("seed-file", "seed"))]
    slurmd = [program["slurmd"], "-D"]
    if hidden:
        slurmd = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none '{hidden}' && exec {program['slurmd']} -D"]
    with_parent = ["setpriv", "--pdeathsig", "TERM"]  # if the tests are killed, the daemons end
    return [[*with_parent, *command] for command in (munged, [program["slurmctld"], "-D"], slurmd)]


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("", 0))
        other.bind(("", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _is_idle() -> bool:
    answer = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == "idle"


def _wait_for(condition: object, folder: Path, seconds: float = 30) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            logs = "\n".join(
                path.read_text(errors="replace") for path in folder.glob("*.*") if path.suffix in (".log", ".out")
            )
            raise TimeoutError(f"Slurm did not start:\n{logs}")
        time.sleep(0.1)


def _wait_for_jobs(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=False)
        if not answer.stdout.strip():
            return
        time.sleep(0.2)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with slurm_cluster():
        sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
