"""Small runs with averaged weights, and the states of their algorithms after every step."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from messi.algorithms.common.base import ALGORITHMS
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import RunResult
from messi.evaluation.model import load

FILES = ("model.safetensors", "last.safetensors", "records.jsonl", "result.json")
# With this learning rate the loss is lowest after step 8 and never comes close to that again: the valley ends at 20.
ENDED: dict[str, Any] = {"learning_rate": 0.3, "swad_tolerance": 0.02, "swad_overfit_patience": 3}


def config_of(algorithm: str = "erm", **training: Any) -> RunConfig:
    options: dict[str, Any] = {"steps": 42, "evaluate_every": 4, "log_every": 3, "batch_per_domain": 8}
    return RunConfig(
        data=TwoSubsets(per_domain=60),
        target=("b2",),
        algorithm=ALGORITHMS.config(algorithm)(),
        training=TrainingConfig(**{"averaging": "swad", **options, **training}),
    )


def result_of(folder: Path) -> dict[str, Any]:
    """Return the content of ``result.json``."""
    values: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return values


class Recorded(NamedTuple):
    """A finished run with averaged weights, and the state of its algorithm after every step."""

    config: RunConfig
    result: RunResult
    states: list[dict[str, Tensor]]

    def require_mean_of(self, first: int, last: int, decay: float = 1.0) -> None:
        """Require the saved weights to be the mean over these steps, and the buffers to be those of the last step."""
        assert result_of(self.result.path)["averaged_steps"] == [first, last]
        assert self.result.selected_step == last
        model = load(self.result.path)
        assert model.description.averaged_steps == (first, last)
        weights = dict(model.algorithm.named_parameters())
        shares = decay ** torch.arange(last - first, -1, -1, dtype=torch.float64)
        for name, tensor in model.algorithm.state_dict().items():
            if name in weights:
                steps = torch.stack([state[name].double() for state in self.states[first - 1 : last]])
                mean = torch.tensordot(shares / shares.sum(), steps, 1)
                torch.testing.assert_close(tensor.double(), mean, rtol=1e-5, atol=1e-6)  # float32, one rounding a step
                assert not torch.allclose(self.states[last - 1][name].double(), mean, rtol=1e-5, atol=1e-6), name
            else:
                assert torch.equal(tensor, self.states[-1][name]), name


class Stops:
    """Raises an error after a step, or requests a stop, after which a run takes one more step and saves its state."""

    def __init__(self, after: int, *, politely: bool) -> None:
        self.after, self.politely = after, politely

    def stepped(self, step: int) -> None:
        if step == self.after and self.politely:
            signal.raise_signal(signal.SIGTERM)
        elif step == self.after:
            raise ConnectionAbortedError

    def started(self, step: int, steps: int) -> None: ...

    def logged(self, step: int, terms: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, accuracy: float) -> None: ...

    def finished(self) -> None: ...
