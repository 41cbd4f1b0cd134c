"""Do one run of a plan in this process. The processes and jobs of every launcher call this."""

import functools
import json
import traceback
from pathlib import Path
from typing import Any

from messi.core.errors import MessiError
from messi.data.datasets.common.base import DataConfig
from messi.data.examples import Examples
from messi.engine.config import RunConfig
from messi.engine.run import run


def do_run(config: dict[str, Any], folder: str | Path, device: str | None = None) -> str | None:
    """Start or resume a run; return None when it is finished, or the reason for its failure.

    Args:
        config: ``RunConfig.to_dict()``: plain values, which can be sent to another process or machine. A user's own
            file that it names is executed, so the config must come from the process that made the plan.
        folder: the run folder.
        device: such as "cpu" or "cuda:0"; by default a GPU if there is one.

    """
    try:
        chosen = RunConfig.from_dict(config, files=_own_files(config))
        run(chosen, out=folder, device=device, load=lambda: _examples(json.dumps(config["data"])))
    except MessiError as error:
        return str(error)
    except Exception:  # noqa: BLE001 (the other runs continue in any case)
        return traceback.format_exc()
    return None


@functools.lru_cache(maxsize=4)
def _examples(data: str) -> Examples:
    """Return loaded data; consecutive runs of a plan usually share it."""
    values = json.loads(data)
    config: DataConfig = DataConfig.from_dict(values, files=_own_files({"data": values}))
    return config.load()


def _own_files(config: dict[str, Any]) -> list[str]:
    """Return the user's own files that a config names."""
    names = [str(part.get("name")) for part in config.values() if isinstance(part, dict)]
    return [name for name in names if name.endswith(".py")]
