"""The selected model of a finished run, together with the data of the run, to measure what no file has yet."""

import functools
import json

import torch

from messi.algorithms._base import Algorithm
from messi.core.errors import MessiError
from messi.data.datasets._base import DataConfig
from messi.data.examples import Examples
from messi.data.loader import Loader
from messi.data.vault import Vault
from messi.engine.run import pick_device, placed, split_of
from messi.evaluation.model import load
from messi.sweeps.plan import Outcome


def reopened(outcome: Outcome) -> tuple[Algorithm, Loader]:
    """Return the model and its data on a GPU if there is one; training is over, so the target may be read."""
    device = pick_device(None)
    model = load(outcome.path, device=device)
    config = outcome.run.config.resolved()
    examples = _examples(json.dumps(config.data.to_dict()), device)
    if examples.fingerprint != model.description["data"]:
        raise MessiError(f"The data of {outcome.path} has changed since; run it again in another folder with --out.")
    vault = Vault(examples, split_of(config, examples))
    vault.open_target()
    return model.algorithm, Loader(vault=vault, spec=model.spec, device=device)


@functools.lru_cache(maxsize=1)
def _examples(data: str, device: torch.device) -> Examples:
    """Return loaded data; neighbours in a plan mostly share it."""
    config: DataConfig = DataConfig.from_dict(json.loads(data))
    return placed(config.load(), device)
