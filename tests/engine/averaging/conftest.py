"""Runs whose weights are recorded after every step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messi.algorithms.common.base import ALGORITHMS, Algorithm
from messi.core.batch import Batch
from messi.engine.run import run

from .helpers import Recorded, config_of


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recorded]:
    """Return a function that trains with averaged weights and keeps the state after every step."""

    def train(algorithm: str, **options: Any) -> Recorded:
        cls: type[Algorithm] = ALGORITHMS.load(algorithm)
        update, states = cls.update, []

        def recorded(self: Algorithm, batch: Batch, stepper: Any) -> Any:
            terms = update(self, batch, stepper)
            states.append({name: tensor.clone() for name, tensor in self.state_dict().items()})
            return terms

        monkeypatch.setattr(cls, "update", recorded)
        config = config_of(algorithm, **options)
        return Recorded(config, run(config, out=tmp_path / "run", device="cpu"), states)

    return train
