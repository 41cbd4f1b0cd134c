"""Which settings of a run have no effect on training, because another setting turns off the part that reads them."""

import dataclasses

from messi.engine.config import RunConfig
from messi.engine.training_config import TrainingConfig

_SWAD = ("swad_optimum_patience", "swad_overfit_patience", "swad_tolerance")


def unused_settings(config: RunConfig) -> dict[str, str]:
    """Return the settings of a resolved config that differ from their defaults without effect, each with the reason."""
    stated = {
        *(name for part in (config.training, config.algorithm) for name in _changed(part)),
        *config.deviations(),
    }
    found = {name: why for name, why in {**_of_training(config), **config.algorithm.unused()}.items() if name in stated}
    if config.start and config.encoder.weights:
        found["weights"] = "start names the weights"
    return found


def _changed(part: object) -> list[str]:
    """Return the settings that differ from their defaults; ``RunConfig.deviations`` has those of the protocol."""
    assert dataclasses.is_dataclass(part)  # noqa: S101 (configs are)
    fields = [one for one in dataclasses.fields(part) if one.name not in TrainingConfig.open_fields()]
    return [one.name for one in fields if getattr(part, one.name) != one.default]


def _of_training(config: RunConfig) -> dict[str, str]:
    training, found = config.training, dict[str, str]()
    averaging, flatness = f"averaging is '{training.averaging}'", f"flatness is '{training.flatness}'"
    if training.averaging not in ("ma", "ema"):
        found["average_from"] = averaging
    if training.averaging != "ema":
        found["ema_decay"] = averaging
    if training.averaging != "swad":
        found |= dict.fromkeys(_SWAD, averaging)
    if training.flatness == "none":
        found["flatness_radius"] = flatness
    if training.flatness != "sagm":
        found["sagm_alpha"] = flatness
    if not training.probe_steps:
        found["probe_learning_rate"] = "probe_steps is 0"
    if config.encoder.tuning.kind == "head":
        found["layer_decay"] = "tune is 'head'"
    return found
