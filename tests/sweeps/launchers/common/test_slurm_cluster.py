"""Time limits as Slurm writes them; the questions to Slurm are tested with the launcher."""

import pytest

from messi.core.errors import MessiError
from messi.sweeps.launchers.common.slurm_cluster import minutes


@pytest.mark.parametrize(
    ("time", "expected"),
    [("90", 90), ("2:30", 3), ("12:00:00", 720), ("0:30:01", 31), ("2-0", 2880), ("1-02:03", 1563), ("1-0:0:1", 1441)],
)
def test_times_are_read_as_sbatch_reads_them(time: str, expected: int) -> None:
    assert minutes(time) == expected


@pytest.mark.parametrize("time", ["", "soon", "-5", "1:2:3:4", "1.5", "1-", "1-2-3"])
def test_an_invalid_time_is_refused(time: str) -> None:
    with pytest.raises(MessiError, match=f"time must be a number of minutes, such as 90, .* but is '{time}'"):
        minutes(time)
