"""The config of a run: everything that decides its result, and nothing else."""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.messi import MESSI
from messi.core.config import Bounds, Config
from messi.core.errors import MessiError
from messi.core.registry import short_name
from messi.core.rundir import folder_name
from messi.data.datasets.common.base import Augmentation, DataConfig
from messi.data.sampling import Sampling
from messi.data.splits import SplitKind, TargetPart
from messi.engine.protocols import ProtocolName, protocol_settings
from messi.engine.stepper import Flatness
from messi.evaluation.selection import SelectionRule
from messi.models.encoder import SMALL, EncoderConfig

Count = Annotated[int, Bounds(minimum=1)]
Averaging = Literal["none", "swad"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """Schedule, optimizer and splits; whatever is not given is what the protocol says."""

    steps: Count | None = None
    """Number of training steps."""
    batch_per_domain: Count | None = None
    """Images of a source domain in a batch."""
    domains_per_batch: Count | None = None
    """Source domains in a batch, drawn anew at every step; by default all."""
    sampling: Sampling | None = None
    """Draw a domain's images with replacement, in shuffled epochs, or with equal chances for its classes."""
    learning_rate: Annotated[float, Bounds(above=0)] | None = None
    """Adam's learning rate, constant."""
    weight_decay: Annotated[float, Bounds(minimum=0)] | None = None
    """Adam's weight decay."""
    flatness: Flatness = "none"
    """Look for flat minima with any method: by SAM, or by SAGM's matching of gradients."""
    flatness_radius: Annotated[float, Bounds(above=0)] = 0.05
    """How far SAM and SAGM look: rho."""
    sagm_alpha: Annotated[float, Bounds(minimum=0)] | None = None
    """How much of the gradient SAGM takes off its look ahead."""
    averaging: Averaging = "none"
    """Average the weights over the steps of a valley of the validation loss, with any method: SWAD."""
    swad_optimum_patience: Count = 3
    """Evaluations, the first of which has the lowest loss, after which SWAD sees a valley."""
    swad_overfit_patience: Count = 6
    """Evaluations above the tolerated loss after which SWAD's valley is over, and training with it."""
    swad_tolerance: Annotated[float, Bounds(minimum=0)] | None = None
    """How far the loss in SWAD's valley may rise, as a share of that at its bottom."""
    augmentation: Augmentation | None = None
    """Augmentation of the training images; by default what suits the data."""
    validation_augmentation: bool | None = None
    """Augment the source validation images, too, as DomainBed does."""
    evaluate_every: Count | None = None
    """Steps between evaluations; a checkpoint is written at each."""
    selection: SelectionRule | None = None
    """Select the step by accuracy on validation data of the source or of unseen domains, or by macro F1 on the latter.

    Accuracy is the mean over domains; macro F1, as in WILDS, is that of all examples together. With SWAD no step is
    selected: its valley is found by the loss on the same data."""
    split: SplitKind | None = None
    """How validation data is set aside: per class, as DomainBed does, or as the data's own table says."""
    validation_fraction: Annotated[float, Bounds(above=0, maximum=0.9)] | None = None
    """Share of every source domain that is held out for selection."""
    target_part: TargetPart | None = None
    """Report on all of the target, or on the part that DomainBed calls 'in' (80 %)."""
    log_every: Count = 10
    """Steps that one line of loss terms is the mean of."""
    deterministic: bool = True
    """Use only kernels that give the same bits every time; matters on a GPU alone."""


@dataclass(frozen=True, kw_only=True)
class Settings(TrainingConfig):
    """A training config in which nothing is left open."""

    steps: Count
    batch_per_domain: Count
    sampling: Sampling
    learning_rate: Annotated[float, Bounds(above=0)]
    weight_decay: Annotated[float, Bounds(minimum=0)]
    sagm_alpha: Annotated[float, Bounds(minimum=0)]
    swad_tolerance: Annotated[float, Bounds(minimum=0)]
    augmentation: Augmentation
    validation_augmentation: bool
    evaluate_every: Count
    selection: SelectionRule
    split: SplitKind
    validation_fraction: Annotated[float, Bounds(above=0, maximum=0.9)]
    target_part: TargetPart


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """One training run."""

    data: DataConfig
    target: tuple[str, ...] = ()
    """Domains to hold out of one run. None: all are sources; on the command line, each is held out in turn."""
    sources: tuple[str, ...] = ()
    """Domains to train on; by default all but the target."""
    algorithm: AlgorithmConfig = field(default_factory=MESSI.Config)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    protocol: ProtocolName = "messi"
    """Whose settings to use where none are given ('messi list protocols')."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    seed: Annotated[int, Bounds(minimum=0)] = 0
    """Seed of everything random in the run."""

    def resolved(self) -> "RunConfig":
        """Return this config with every default that depends on protocol, data or backbone filled in."""
        backbone = self.encoder.backbone or self.data.backbone
        pretrained = self.encoder.pretrained and backbone not in SMALL
        encoder = dataclasses.replace(self.encoder, backbone=backbone, pretrained=pretrained)
        encoder.check()
        given = {key: value for key, value in vars(self.training).items() if value is not None}
        settings = Settings(**{**self._protocol(backbone), **given})
        return dataclasses.replace(self, encoder=encoder, training=settings)

    @property
    def settings(self) -> Settings:
        """The training settings of a resolved config."""
        if not isinstance(self.training, Settings):
            raise MessiError("Some settings of this config are still open; use the one that resolved() returns.")
        return self.training

    def deviations(self) -> dict[str, Any]:
        """Return the settings of a resolved config that are not its protocol's."""
        stated = self._protocol(str(self.encoder.backbone))
        return {key: getattr(self.training, key) for key in stated if getattr(self.training, key) != stated[key]}

    def folder_name(self) -> str:
        """Return a name that a person can read and that no other config has."""
        target = "+".join(self.target) or ("official" if self.training.split == "official" else "all")
        target = target if len(target) <= 60 else f"{len(self.target)}-targets"  # a file name has 255 characters
        method = short_name(self.algorithm.name)
        return folder_name(f"{self.data.name}_{method}_{target}_seed{self.seed}_{self.fingerprint()}")

    def _protocol(self, backbone: str) -> dict[str, Any]:
        settings = protocol_settings(self.protocol, self.data.name, small=backbone in SMALL)
        return {"augmentation": self.data.augmentation, **settings}
