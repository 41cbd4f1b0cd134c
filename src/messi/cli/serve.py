"""``messi serve``: answer requests over HTTP with a trained model."""

from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.output import note, say
from messi.core.errors import MessiError
from messi.core.precision import StatedPrecision
from messi.data.find import find_data
from messi.engine.build import pick_device
from messi.evaluation.model import load
from messi.serving.limits import Limits


def main(arguments: list[str]) -> int:
    """Parse and serve."""
    return tyro.cli(serve, prog="messi serve", args=arguments, config=FLAT)


def serve(
    run: tyro.conf.Positional[Annotated[Path, shown_as("RUN")]],
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    data: Annotated[str | None, shown_as("DATA")] = None,
    algorithm: Annotated[Path | None, shown_as("FILE")] = None,
    device: Annotated[str | None, shown_as("DEVICE")] = None,
    precision: StatedPrecision | None = None,
    limits: Annotated[Limits, tyro.conf.arg(name="")] = Limits(),  # noqa: B008 (frozen)
) -> int:
    """Serve a trained model over HTTP: a JSON API, and a page for dropping an image or pasting a row.

    The service answers until it is stopped with Ctrl-C or SIGTERM, and then finishes the running requests. It does not
    authenticate anybody, so by default only this machine can reach it. The first time that a run is served, some of its
    validation data are encoded to recognise inputs that are unlike all training domains.

    Args:
        run: A run folder or a model file.
        host: The address to bind; others than the loopback address can be reached by other machines.
        port: The port; 0 finds a free one.
        data: Where the data of the run are now, if they were moved; only needed the first time.
        algorithm: The file of your own method. It is executed, so name only files that you trust.
        device: Such as cpu or cuda:0; by default a GPU if there is one.
        precision: Number format of the network; by default that which the run stated, or else that of the device.
        limits: What a request may cost.

    """
    try:
        from messi.serving.known_domains import NoBankError, known_domains  # noqa: PLC0415 (an optional extra)
        from messi.serving.predictor import Predictor  # noqa: PLC0415
        from messi.serving.run_server import bind, is_loopback, url  # noqa: PLC0415
        from messi.serving.run_server import serve as run_server  # noqa: PLC0415
        from messi.serving.service import make_app  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MessiError(
            f"messi serve requires the package '{error.name}'; install it with: pip install 'messi-dg[serve]'."
        ) from error
    model = load(run, device=pick_device(device), precision=precision, algorithm=algorithm)
    with bind(host, port) as bound:
        known, reason = None, None
        try:
            known = known_domains(run, model, algorithm=algorithm, data=find_data(data) if data else None)
        except NoBankError as error:
            reason = str(error)
            note(f"Inputs that are unlike the training domains are not recognised: {reason}")
        if not is_loopback(bound):
            note("The service does not authenticate anybody: every machine that reaches this address can use it.")
        predictor = Predictor(model, known)
        predictor.warm_up()
        app = make_app(predictor, limits, no_warning_because=reason)
        run_server(
            app, bound, seconds=limits.seconds, ready=lambda: say(f"serving {run} at {url(bound)}; stop with Ctrl-C")
        )
    return 0
