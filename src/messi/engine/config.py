"""The config of a run: everything that determines its result, and nothing else."""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

from messi.algorithms.common.base import ALGORITHMS, AlgorithmConfig
from messi.algorithms.messi import MESSI
from messi.core.config import Added, Bounds, Config
from messi.core.errors import MessiError
from messi.core.precision import StatedPrecision
from messi.core.registry import short_name
from messi.core.rundir import folder_name
from messi.data.datasets.common.base import DataConfig
from messi.engine.protocols import ProtocolName, protocol_training
from messi.engine.training_config import TrainingConfig
from messi.models.encoder import SMALL, EncoderConfig
from messi.models.tuning import FULL

__all__ = ["RunConfig", "TrainingConfig"]


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """One training run."""

    data: DataConfig
    target: tuple[str, ...] = ()
    """Domains to hold out. If none are named, all are sources; the command line then holds out each in turn."""
    sources: tuple[str, ...] = ()
    """Domains to train on; by default all except the target."""
    algorithm: AlgorithmConfig = field(default_factory=MESSI.Config)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    start: str | None = None
    """Begin with the weights of this run (its folder, or its name if it is next to the new run) or model file."""
    protocol: ProtocolName = "messi"
    """Paper whose settings are the defaults ('messi list protocols')."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    seed: Annotated[int, Bounds(minimum=0)] = 0
    """Seed of everything random in the run."""
    precision: Annotated[StatedPrecision | None, Added()] = None
    """Number format of the network in training and prediction; by default chosen by the hardware ('messi info')."""
    split_seed: Annotated[int, Bounds(minimum=0)] | None = None
    """Seed of the validation split; by default --seed. Runs to be averaged share it and differ in their seed."""

    def __post_init__(self) -> None:
        """Check each setting, and that the data are an object and not the name that the command line takes."""
        super().__post_init__()
        if not isinstance(self.data, DataConfig):
            raise MessiError(
                f"data must be an object such as messi.Folder(path='photos') or messi.PACS(), but is {self.data!r}."
            )

    def resolved(self) -> "RunConfig":
        """Return this config with every default that depends on protocol, data or backbone filled in."""
        backbone = self.encoder.backbone or self.data.backbone
        pretrained = self.encoder.pretrained and backbone not in SMALL
        encoder = dataclasses.replace(self.encoder, backbone=backbone, pretrained=pretrained)
        encoder.check()
        training = self.training.filled_from(self._protocol_training(encoder))
        resolved = dataclasses.replace(self, encoder=encoder, training=training)
        resolved.check_tuning()
        return resolved

    def check_tuning(self) -> None:
        """Raise if settings of a resolved config contradict the part of the encoder that trains."""
        encoder, training = self.encoder, self.training
        if encoder.tuning == FULL:
            return
        ALGORITHMS.load(self.algorithm.name).require(encoder.tuning)
        if not (encoder.pretrained or encoder.weights or self.start):
            raise MessiError(
                f"tune '{encoder.tune}' freezes weights, but the encoder starts from random ones; omit "
                "--no-pretrained, or name --weights or --start."
            )
        if encoder.tuning.kind == "head" and training.validation_augmentation:
            raise MessiError("tune 'head' validates on plain images; omit --validation-augmentation.")
        if encoder.tuning.kind == "head" and (encoder.views > 1) != (training.augmentation != "none"):
            raise MessiError(
                f"augmentation '{training.augmentation}' contradicts {encoder.views} view(s) with --tune head: the "
                "first view is the plain image, and all others are augmented; change --augmentation or --views."
            )

    def deviations(self) -> dict[str, Any]:
        """Return the settings of a resolved config that differ from its protocol's."""
        stated = self._protocol_training(self.encoder)
        values = {name: getattr(self.training, name) for name in TrainingConfig.open_fields()}
        return {name: value for name, value in values.items() if value != getattr(stated, name)}

    def folder_name(self) -> str:
        """Return a name that people can read and that no other config has."""
        target = "+".join(self.target) or ("official" if self.training.split == "official" else "all")
        target = target if len(target) <= 60 else f"{len(self.target)}-targets"  # a file name has 255 characters
        method = short_name(self.algorithm.name)
        return folder_name(f"{self.data.name}_{method}_{target}_seed{self.seed}_{self.fingerprint()}")

    def _protocol_training(self, encoder: EncoderConfig) -> TrainingConfig:
        stated = protocol_training(self.protocol, self.data.name, encoder.kind)
        plain = encoder.kind == "frozen" and encoder.views == 1
        return stated.filled_from(TrainingConfig(augmentation="none" if plain else self.data.augmentation))
