"""Check that all data and weights of a plan are available, before anything runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from messi.core.errors import MessiError
from messi.data.datasets.common.base import DataConfig, ImageData
from messi.data.datasets.common.benchmark import Benchmark
from messi.data.progress import DataProgress
from messi.models.encoder import EncoderConfig
from messi.sweeps.plan import Plan


def check_data_and_weights(plan: Plan, progress: DataProgress) -> None:
    """Find all data and weights, and download what can be downloaded; raise an error for the first that is missing.

    Weight files come first: a wrong name is reported before gigabytes of data are downloaded.
    """
    configs = [run.config.resolved() for run in plan.runs]
    encoders = [EncoderConfig.from_dict(encoder) for encoder in _unique([c.encoder.to_dict() for c in configs])]
    for encoder in encoders:
        with _advising(_weights_advice(encoder)):
            encoder.check_weights()
    for data in _unique([config.data.to_dict() for config in configs]):
        _check_data(DataConfig.from_dict(data), progress)
    for encoder in encoders:
        if encoder.pretrained:
            with _advising(_weights_advice(encoder)):
                encoder.build((3, 224, 224))


def _check_data(data: DataConfig, progress: DataProgress) -> None:
    if isinstance(data, Benchmark):
        with _advising(f"Use --path to name the folder that contains the folder {data.manifest.folder}."):
            data.listing(progress)
    elif isinstance(data, ImageData):
        data.listing(progress)
    else:
        data.load(progress)


def _weights_advice(encoder: EncoderConfig) -> str:
    return f"Use --weights to name a folder that contains {encoder.backbone}.safetensors or {encoder.backbone}.pth."


@contextmanager
def _advising(advice: str) -> Iterator[None]:
    """Replace the advice for one run by that for a plan, whose options name folders instead of files."""
    try:
        yield
    except MessiError as error:
        if not error.advice:
            raise
        raise MessiError(error.problem, advice) from error


def _unique(dicts: list[dict[str, object]]) -> list[dict[str, object]]:
    return [json.loads(text) for text in dict.fromkeys(json.dumps(values, sort_keys=True) for values in dicts)]
