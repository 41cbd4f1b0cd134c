"""Whether everything is there that a plan needs, before anything runs."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from messi.core.errors import MessiError, unknown_name
from messi.data.datasets.common.base import DataConfig, ImageData
from messi.data.datasets.common.benchmark import Benchmark
from messi.data.progress import DataProgress
from messi.models.encoder import EncoderConfig
from messi.sweeps.plan import Plan


def check_workers(jobs: int, devices: Sequence[str]) -> None:
    """Refuse a number of runs at a time that would do none, and devices that are not here."""
    if jobs < 1:
        raise MessiError(f"jobs must be at least 1, but is {jobs}.")
    gpus = torch.cuda.device_count()
    known = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{number}" for number in range(gpus))]
    for device in devices:
        if device not in known:
            raise unknown_name("device", device, known)


def check_needs(plan: Plan, progress: DataProgress) -> None:
    """Find all data and weights, and download what can be; raise what is missing as one sentence that says so.

    Files of weights come first: a wrong name is told before gigabytes of data are downloaded.
    """
    configs = [run.config.resolved() for run in plan.runs]
    encoders = [EncoderConfig.from_dict(encoder) for encoder in _different([c.encoder.to_dict() for c in configs])]
    for encoder in encoders:
        with _advising(_weights_advice(encoder)):
            encoder.check_weights()
    for data in _different([config.data.to_dict() for config in configs]):
        _check_data(DataConfig.from_dict(data), progress)
    for encoder in encoders:
        if encoder.pretrained:
            with _advising(_weights_advice(encoder)):
                encoder.build((3, 224, 224))


def _check_data(data: DataConfig, progress: DataProgress) -> None:
    if isinstance(data, Benchmark):
        with _advising(f"With --path, name the folder that holds the folder {data.manifest.folder}."):
            data.listing(progress)
    elif isinstance(data, ImageData):
        data.listing(progress)
    else:
        data.load(progress)


def _weights_advice(encoder: EncoderConfig) -> str:
    return f"With --weights, name a folder that holds {encoder.backbone}.safetensors or {encoder.backbone}.pth."


@contextmanager
def _advising(advice: str) -> Iterator[None]:
    """Put the advice for a plan, whose options name folders of many files, in the place of that for one run."""
    try:
        yield
    except MessiError as error:
        if not error.advice:
            raise
        raise MessiError(error.problem, advice) from error


def _different(dicts: list[dict[str, object]]) -> list[dict[str, object]]:
    return [json.loads(text) for text in dict.fromkeys(json.dumps(values, sort_keys=True) for values in dicts)]
