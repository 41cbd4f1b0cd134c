"""Whether everything is there that a plan needs, before anything runs."""

import json

from messi.data.datasets._base import DataConfig, PictureData
from messi.data.watcher import Watcher
from messi.models.encoder import EncoderConfig
from messi.sweeps.plan import Plan


def check_needs(plan: Plan, watcher: Watcher) -> None:
    """Find all data and weights, and download what can be; raise what is missing as one sentence that says so."""
    configs = [run.config.resolved() for run in plan.runs]
    for data in _different([config.data.to_dict() for config in configs]):
        wanted: DataConfig = DataConfig.from_dict(data)
        if isinstance(wanted, PictureData):
            wanted.listing(watcher)
        else:
            wanted.load(watcher)
    for encoder in _different([config.encoder.to_dict() for config in configs]):
        network = EncoderConfig.from_dict(encoder)
        if network.pretrained:
            network.build((3, 224, 224))


def _different(dicts: list[dict[str, object]]) -> list[dict[str, object]]:
    return [json.loads(text) for text in dict.fromkeys(json.dumps(values, sort_keys=True) for values in dicts)]
