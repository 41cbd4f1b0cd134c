"""What a job does when Slurm warns it outside of training; warnings during training are tested with the launcher."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from messi.sweeps.launchers.common import slurm_job
from messi.sweeps.launchers.common.slurm_job import NO_PROGRESS, SlurmJob


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Let SIGUSR2 mean what it means in a job of submitit: requeue and exit."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    signal.signal(signal.SIGUSR2, lambda _number, _frame: sys.exit("requeued"))
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("progress", [False, True])
def test_a_run_that_the_time_limit_stops_twice_at_the_same_place_has_failed(
    progress: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the job would be requeued for ever. The run after it is kept for the requeued job."""

    def warned(_planned: object, folder: Path, _device: str, *, devices: int) -> None:
        assert devices == 1
        if progress:
            folder.mkdir(parents=True)
            (folder / "last.safetensors").touch()
        os.kill(os.getpid(), signal.SIGUSR2)
        pytest.fail("The run was not stopped.")

    monkeypatch.setattr(slurm_job, "do_run", warned)
    monkeypatch.setattr(slurm_job, "is_running", lambda _job: True)
    monkeypatch.setattr(slurm_job, "_job", lambda: JobHere(tmp_path / "slurm" / "jobs" / "1_0_log.out"))
    (tmp_path / "slurm").mkdir()
    job = SlurmJob(tmp_path, [("first", {}), ("second", {})], 1, "cpu")
    with pytest.raises(SystemExit, match="requeued"):
        job()
    assert [name for name, _ in job.runs] == (["first", "second"] if progress else ["second"])
    failed = {file.name: file.read_text() for file in tmp_path.glob("failed/*")}
    assert failed == ({} if progress else {"first.txt": f"{NO_PROGRESS}\n"})


class JobHere:
    job_id = "1"

    def __init__(self, stdout: Path) -> None:
        self.stdout = stdout

    @property
    def paths(self) -> "JobHere":
        return self
