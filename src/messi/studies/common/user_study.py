"""What studies of the user's own data share: methods with settings, on domains that are held out."""

import functools
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from messi.core.config import Config
from messi.core.errors import MessiError
from messi.core.rundir import PLAN
from messi.data.datasets.common.base import DataConfig
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.protocols import ProtocolName
from messi.models.encoder import EncoderConfig
from messi.studies.common.base import Study
from messi.studies.common.methods import method_label, permit_methods


@dataclass(frozen=True, kw_only=True)
class RunSettings(Config):
    """The settings of all runs, whatever their method."""

    protocol: ProtocolName = "messi"
    """Paper whose settings are the defaults ('messi list protocols')."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return {"protocol": self.protocol, "encoder": self.encoder, "training": self.training}

    def run_config(self, data: DataConfig, target: tuple[str, ...] = (), seed: int = 0) -> RunConfig:
        """Return the config of a run without its method."""
        return RunConfig(data=data, target=target, seed=seed, **self.settings)


@dataclass(frozen=True, kw_only=True)
class HeldOut(RunSettings):
    """Which domains a user wants to hold out."""

    target: tuple[str, ...] = ()
    """The domains that the model is for: only these are held out, together. By default each domain in turn."""
    hold_out: tuple[str, ...] = ()
    """A number of groups of domains that are held out together, or the groups, such as a+b c+d."""


@dataclass(frozen=True, kw_only=True)
class UserStudy(RunSettings, Study):
    """A study whose methods may carry settings or be the user's own; its command reads it from ``plan.json``."""

    methods: tuple[str, ...]
    """Methods and recipes, with settings if they differ, such as "erm steps=500"."""

    def __post_init__(self) -> None:
        """Refuse a plan with the same method twice."""
        super().__post_init__()
        if len(self.by_label) < len(self.methods):
            raise MessiError("Every method must differ from the others in its name or settings, but two are equal.")

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, files: Collection[str | Path] = ()) -> Self:
        """Restore a study; a method in a user's own file is only accepted if the caller names the file."""
        study = super().from_dict(values, files=files)
        permit_methods(study.methods, files)
        return study

    @functools.cached_property
    def by_label(self) -> dict[str, str]:
        """The methods by the names that tables use."""
        return {method_label(text): text for text in self.methods}

    def command(self, folder: Path) -> list[str]:
        """Return the words of the command that repeats the plan: it reads the options from the folder."""
        return ["messi", self.name, "--plan", str(folder / PLAN)]
