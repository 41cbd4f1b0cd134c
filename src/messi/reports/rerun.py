"""How to train the same again: the command for one run, or a few lines of Python for all of them."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from messi.reports.runs import FinishedRun

_BY_PATH = ("arrays", "folder", "table", "wilds")
"""Kinds of data that ``--data`` names by their path."""
_WORDED = ("validation-augmentation",)
"""Switches that may also be left open, so that the command line takes True or False after their name."""


def rerun_command(run: FinishedRun) -> str:
    """Return the ``messi train`` command with every setting of a run, one line for each part of the config."""
    config = run.config
    data = dict(config["data"])
    kind = data.pop("name")
    named = str(data.pop("path", kind)) if kind in _BY_PATH else kind
    algorithm = dict(config["algorithm"])
    parts = [
        ["--data", named, *_options(data)],
        ["--algorithm", algorithm.pop("name"), *_options(algorithm)],
        [*_target(config), *_options({key: config[key] for key in ("sources", "protocol", "seed") if key in config})],
        *(_options(config[part]) for part in ("encoder", "training") if part in config),
    ]
    return " \\\n  ".join(["messi train", *(shlex.join(part) for part in parts if part)])


def rerun_snippet(runs: Sequence[FinishedRun]) -> str:
    """Return the Python lines that train the same configs again."""
    folders = "".join(f"    {run.path.resolve().name!r},\n" for run in runs)
    own = sorted({name for run in runs if (name := run.config["algorithm"]["name"]).endswith(".py")})
    files = f", files={own!r}" if own else ""  # a config alone has no code run
    return (
        "import json, pathlib\n"
        "import messi\n\n"
        f"for folder in [\n{folders}]:\n"
        '    described = json.loads(pathlib.Path(folder, "run.json").read_text())\n'
        f'    config = messi.RunConfig.from_dict(described["config"]{files})\n'
        '    messi.run(config, out=folder + "-again")\n'
    )


def _target(config: dict[str, Any]) -> list[str]:
    if config["target"] or config["training"].get("split") == "official":
        return list(_options({"target": config["target"]}))
    return ["--target", "none"]


def _options(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in _option(name.replace("_", "-"), value)]


def _option(name: str, value: Any) -> Iterator[str]:
    if value is None or value == []:
        return
    if isinstance(value, bool) and name not in _WORDED:
        yield f"--{name}" if value else f"--no-{name}"
        return
    yield f"--{name}"
    yield from map(str, value if isinstance(value, list) else [value])
