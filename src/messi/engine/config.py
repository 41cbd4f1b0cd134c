"""The config of a run: everything that decides its result, and nothing else."""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

from messi.algorithms._base import AlgorithmConfig
from messi.algorithms.messi import Messi
from messi.core.config import Bounds, Config
from messi.core.errors import MessiError
from messi.data.datasets._base import Augmentation, DataConfig
from messi.data.splits import SplitKind, TargetPart
from messi.models.encoder import SMALL, EncoderConfig

Count = Annotated[int, Bounds(minimum=1)]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """Schedule, optimizer and splits; the paper's values for PACS."""

    steps: Count = 5000
    """Number of training steps."""
    batch_per_domain: Count = 32
    """Images of every source domain in a batch."""
    learning_rate: Annotated[float, Bounds(above=0)] | None = None
    """Adam's learning rate, constant; by default 3e-5, or 1e-3 for the small encoders."""
    weight_decay: Annotated[float, Bounds(minimum=0)] = 1e-6
    """Adam's weight decay."""
    augmentation: Augmentation | None = None
    """Augmentation of the training images; by default what suits the data."""
    evaluate_every: Count = 200
    """Steps between evaluations; a checkpoint is written at each."""
    log_every: Count = 10
    """Steps that one line of loss terms is the mean of."""
    deterministic: bool = True
    """Use only kernels that give the same bits every time; matters on a GPU alone."""
    split: SplitKind = "stratified"
    """How the validation part of a source domain is drawn."""
    validation_fraction: Annotated[float, Bounds(above=0, maximum=0.9)] = 0.2
    """Share of every source domain that is held out for selection."""
    target_part: TargetPart = "all"
    """Report on all of the target, or on the part that DomainBed calls 'in' (80 %)."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """One training run."""

    data: DataConfig
    target: tuple[str, ...] = ()
    """Domains to hold out; none: all are sources."""
    algorithm: AlgorithmConfig = field(default_factory=Messi.Config)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    seed: Annotated[int, Bounds(minimum=0)] = 0
    """Seed of everything random in the run."""

    def resolved(self) -> "RunConfig":
        """Return this config with every default that depends on the data or the backbone filled in."""
        backbone = self.encoder.backbone or self.data.backbone
        pretrained = self.encoder.pretrained and backbone not in SMALL
        encoder = dataclasses.replace(self.encoder, backbone=backbone, pretrained=pretrained)
        encoder.check()
        training: dict[str, Any] = {}
        if self.training.learning_rate is None:
            training["learning_rate"] = 1e-3 if backbone in SMALL else 3e-5
        if self.training.augmentation is None:
            training["augmentation"] = self.data.augmentation
        return dataclasses.replace(self, encoder=encoder, training=dataclasses.replace(self.training, **training))

    def folder_name(self) -> str:
        """Return a name that a person can read and that no other config has."""
        target = "+".join(self.target) or "all"
        target = target if len(target) <= 60 else f"{len(self.target)}-targets"  # a file name has 255 characters
        return f"{self.data.name}_{self.algorithm.name}_{target}_seed{self.seed}_{self.fingerprint()}".replace("/", "-")


def require(value: float | str | None, name: str) -> Any:
    """Return a value that :meth:`RunConfig.resolved` fills in."""
    if value is None:
        raise MessiError(f"{name} is not set; use the config that resolved() returns.")
    return value
