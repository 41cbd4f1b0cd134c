"""Do one run or average of a plan in this process. The processes and jobs of every launcher call this."""

import functools
import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from messi.core.errors import MessiError
from messi.core.registry import provide_file
from messi.data.datasets.common.base import DataConfig
from messi.data.examples import Examples
from messi.engine.average_runs import average_runs
from messi.engine.config import RunConfig
from messi.engine.run import run, run_until
from messi.sweeps.followers import led_by_this


def do_run(
    planned: Mapping[str, Any],
    folder: str | Path,
    device: str | None = None,
    *,
    data_paths: Mapping[str, str] | None = None,
    own_files: Mapping[str, bytes] | None = None,
    devices: int = 1,
) -> str | None:
    """Start or resume a run or an average; return None when it is finished or paused, or the reason for its failure.

    Args:
        planned: its ``to_dict()``: plain values, which can be sent to another process or machine. A user's own file
            that they name is executed, so they must come from the process that made the plan.
        folder: the run folder.
        device: such as "cpu" or "cuda:0"; by default a GPU if there is one.
        data_paths: fields of the data config that locate the data, if it is at another path on this machine. The run
            is recorded with the path in ``planned``.
        own_files: the contents of the user's own files by path, if they may not be on this machine.
        devices: how many devices of this machine share the steps of a run.

    """
    request = {"planned": planned, "folder": folder, "device": device, "data_paths": data_paths, "own_files": own_files}
    planned = dict(planned)
    try:
        for path, content in (own_files or {}).items():
            provide_file(path, content)
        files = own_files_of(planned)
        load = functools.partial(_examples, json.dumps({**planned["data"], **(data_paths or {})}))
        if "average" in planned:
            runs = [Path(folder).parent / name for name in planned["average"]]
            own = planned["algorithm"]["name"]
            algorithm = own if own in files else None
            average_runs(runs, choice=planned["choice"], out=folder, device=device, algorithm=algorithm, load_data=load)
        elif (step := planned.pop("until", None)) is not None:
            config = RunConfig.from_dict(planned, files=files)
            with led_by_this(devices, request) as processes:
                run_until(config, step, out=folder, device=device, load=load, processes=processes)
        else:
            config = RunConfig.from_dict(planned, files=files)
            with led_by_this(devices, request) as processes:
                run(config, out=folder, device=device, load=load, processes=processes)
    except MessiError as error:
        return str(error)
    except Exception:  # noqa: BLE001 (the other runs continue in any case)
        return traceback.format_exc()
    return None


@functools.lru_cache(maxsize=4)
def _examples(data: str) -> Examples:
    """Return loaded data; consecutive runs of a plan usually share it."""
    values = json.loads(data)
    config: DataConfig = DataConfig.from_dict(values, files=own_files_of({"data": values}))
    return config.load()


def own_files_of(config: Mapping[str, Any]) -> list[str]:
    """Return the user's own files that a config names."""
    names = [str(part.get("name")) for part in config.values() if isinstance(part, dict)]
    return [name for name in names if name.endswith(".py")]
