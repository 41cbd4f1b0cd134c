"""``messi train``: from options to finished runs."""

import argparse
import contextlib
import dataclasses
import functools
import io
import logging
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from messi.algorithms.common.base import ALGORITHMS
from messi.api import run
from messi.cli.common.encoder_options import add_encoder_options, chosen_encoder
from messi.cli.common.estimate import Estimate, faster_on_a_cpu
from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.output import say
from messi.cli.common.progress import data_progress, progress
from messi.cli.common.results import print_held_out, print_results
from messi.core.errors import MessiError
from messi.core.processes import Processes, join, launched, leave
from messi.core.registry import short_name
from messi.core.rundir import RunDir, folder_name
from messi.core.start_processes import require_devices, run_in_processes
from messi.data.datasets.common.base import ImageData
from messi.data.examples import Examples, summary
from messi.data.find import data_label, find_data
from messi.data.listing import Listing
from messi.data.progress import DataProgress, LogProgress
from messi.engine.build import pick_device
from messi.engine.config import RunConfig
from messi.engine.leave_one_out import runs_of
from messi.engine.recipes import default_recipe, find_recipe, recipe
from messi.engine.run import RunResult
from messi.engine.saved_config import read_config
from messi.engine.unused_settings import unused_settings
from messi.reports.page import write_report


def main(arguments: list[str]) -> int:
    """Train, print the results and write the report."""
    command = parse(arguments)
    if command.devices > 1 and not launched():
        require_devices(command.devices, command.device)
        return run_in_processes(["train", *arguments], command.devices)
    processes = join()
    if processes is None:
        _train(command)
        return 0
    if command.devices not in (1, processes.size):
        raise MessiError(f"--devices is {command.devices}, but {processes.size} processes were started; omit it.")
    with processes.together(), contextlib.ExitStack() as silence:
        if not processes.leads:
            logging.getLogger("messi").setLevel(logging.ERROR)
            silence.enter_context(contextlib.redirect_stdout(io.StringIO()))
        _train(command, processes)
    leave()
    return 0


def _train(command: "Command", processes: Processes | None = None) -> None:
    """Do all runs of a command."""
    config, out, device, capture, saved, _ = command
    leads = processes is None or processes.leads
    for name, reason in unused_settings(config).items():
        LogProgress().noted(f"--{name.replace('_', '-')} has no effect on training, because {reason}.")
    loading = data_progress() if leads else LogProgress()
    # Listing the images is enough to report an unknown domain; decoding them would take long.
    with processes.leader_first() if processes else contextlib.nullcontext():
        listing = config.data.listing(loading) if isinstance(config.data, ImageData) else None
        load = functools.cache(functools.partial(_load, config, loading, listing))
        configs = [config] if saved and not config.target else runs_of(config, (listing or load()).domain_names)
    results: list[RunResult] = []
    for number, one in enumerate(configs):
        name = "+".join(one.target) or "all"
        place = out / folder_name(name) if out and len(configs) > 1 else out
        method = short_name(one.algorithm.name)
        title = method if len(configs) == 1 else f"{method} -> {name}"
        shown = progress(title, functools.partial(_about, one, device))
        observers = [shown]
        if not any(result.fresh for result in results):  # one estimate for all runs, from the first that trains
            observers.append(_estimate(title, one, len(configs) - number, device))
        results.append(
            run(one, out=place, device=device, capture=capture, observers=observers, load=load, progress=loading)
        )
    if leads:
        _show(config, results, out)


def _estimate(title: str, config: RunConfig, runs: int, device: str | None) -> Estimate:
    faster = faster_on_a_cpu(config) if pick_device(device).type == "cpu" else ""
    return Estimate(title, runs=runs, evaluate_every=config.training.evaluate_every, faster=faster)


def _about(config: RunConfig, device: str | None) -> str:
    target = "+".join(config.target) or "none"
    return f"data {data_label(config.data)}, target {target}, device {pick_device(device)}"


def _load(config: RunConfig, loading: DataProgress, listing: Listing | None) -> Examples:
    """Load the data, and print its size and the input shape of the network."""
    data = config.data
    examples = data.load(loading, listing=listing) if isinstance(data, ImageData) else data.load(loading)
    spec = config.encoder.input_spec(examples.input_shape)
    say(f"data    {summary(examples, spec)}")
    return examples


def _show(config: RunConfig, results: list[RunResult], out: Path | None) -> None:
    for result in results:
        if not result.fresh:
            say(f"This run is already finished; nothing was done: {result.path}")
    paths = [result.path for result in results]
    (print_held_out if len(paths) > 1 else print_results)(paths)
    for path in paths:
        say(f"model   {RunDir(path).model}")
    page = RunDir(paths[0]).report
    if len(paths) > 1:
        method = short_name(config.algorithm.name)
        page = (out or Path("runs")) / f"{data_label(config.data)}_{method}_seed{config.seed}.html"
        write_report(paths, page)
    say(f"report  {page}")


class Command(NamedTuple):
    """The options of ``messi train``."""

    config: RunConfig
    """A resolved config."""
    out: Path | None
    device: str | None
    capture: bool
    saved: bool
    """Whether the config was read from a file: then no target means that no domain is held out."""
    devices: int
    """The number of processes that take the steps of a run together."""


def parse(arguments: list[str]) -> Command:
    """Parse options.

    Which options exist depends on the method and the data; their defaults depend on recipe and protocol.
    """
    first = argparse.ArgumentParser(prog="messi train", add_help=False, allow_abbrev=False)
    for option in ("config", "data", "recipe", "algorithm", "protocol"):
        first.add_argument(f"--{option}")
    add_encoder_options(first)
    chosen, _ = first.parse_known_args(arguments)
    saved = chosen.config is not None
    config, name = (_change_saved(chosen), None) if saved else _from_scratch(chosen)
    default = config.resolved()

    def train(  # noqa: PLR0913 (the options of the command)
        *,
        data: str = default.data.name if saved else tyro.MISSING,  # noqa: ARG001 (read above, shown here)
        recipe: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = name,  # noqa: ARG001
        algorithm: str = default.algorithm.name,  # noqa: ARG001
        config: Annotated[Path | None, shown_as("RUN")] = None,  # noqa: ARG001
        out: Annotated[Path | None, shown_as("FOLDER")] = None,
        device: Annotated[str | None, shown_as("DEVICE")] = None,
        devices: Annotated[int, shown_as("N")] = 1,
        capture: bool = True,
        settings: Annotated[RunConfig, tyro.conf.arg(name="")] = default,
    ) -> Command:
        """Train on all domains except the target, select a model by source validation, test it once on the target.

        Without --target, each domain is held out in turn, one run each; '--target none' trains on all domains.
        Repeating the command resumes an interrupted run. The options below depend on the chosen --data and --algorithm,
        and their defaults on --recipe, --protocol, --data and --backbone. --algorithm alone trains the plain method;
        with --recipe, another method is trained with the recipe's training settings. With --config, other options
        override the saved ones; a method in your own file must be named again with --algorithm.

        Args:
            data: A folder domain/class/image, a table, an .npz file, a WILDS folder, or a name ('messi data list').
            recipe: A method with its settings ('messi list recipes'); other options override them.
            algorithm: A method ('messi list algorithms'), or your own file with one, such as mine.py.
            config: Repeat an earlier run: its folder or its run.json.
            out: The run folder, or the folder of several runs; by default in runs/, named by the config.
            device: Such as cpu or cuda:0; by default a GPU if there is one.
            devices: Number of GPUs, or of processes on a CPU, that share every batch: same result up to rounding.
            capture: On a GPU, capture the training step once as a CUDA graph and replay it: same result, faster.
            settings: All other settings.

        """
        if devices < 1:
            raise MessiError(f"devices must be at least 1, but is {devices}.")
        return Command(settings, out, device, capture, saved, devices)

    return tyro.cli(train, prog="messi train", args=arguments, config=FLAT)


def _from_scratch(chosen: argparse.Namespace) -> tuple[RunConfig, str | None]:
    """Return the config that these options describe, and the recipe that it starts from: none for a method alone."""
    data = find_data(chosen.data or "pacs")  # for --help; --data is required
    settings: dict[str, Any] = {"encoder": chosen_encoder(chosen)}
    if chosen.protocol:
        settings["protocol"] = chosen.protocol
    method, name = chosen.algorithm, chosen.recipe
    if not (method or name):
        name = default_recipe(data, settings["encoder"])
    if method and not (name and find_recipe(name).algorithm.name == method):
        settings["algorithm"] = ALGORITHMS.config(method)()
    return recipe(name, data=data, **settings) if name else RunConfig(data=data, **settings), name


def _change_saved(chosen: argparse.Namespace) -> RunConfig:
    """Return a saved config, with other data if they are named; tyro applies all further options."""
    if chosen.recipe:
        raise MessiError(
            "--recipe cannot be used with --config: a saved run states every setting. Omit --recipe and override "
            "single settings, or omit --config."
        )
    config = read_config(Path(chosen.config), algorithm=chosen.algorithm)
    if chosen.protocol not in (None, config.protocol):
        raise MessiError(
            f"--protocol cannot be changed to '{chosen.protocol}' with --config: a saved run states every setting. "
            "Omit --protocol and override single settings, or omit --config."
        )
    if chosen.data is None:
        return config
    data = find_data(chosen.data)
    if type(data) is type(config.data):  # keep the saved options and change only the path
        path = {"path": chosen.data} if "path" in vars(data) else {}
        data = dataclasses.replace(config.data, **path)
    return dataclasses.replace(config, data=data)
