"""How the paper's open points may be read: MESSI with one option changed at a time, and what to compare it with."""

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.experiments.common.methods import ERM_MOE, MESSI_MMD

READINGS: dict[str, AlgorithmConfig] = {
    "ERM": ERM.Config(),
    "ERM-MoE": ERM_MOE,
    "MESSI, defaults": MESSI.Config(),
    "sum over slots": MESSI.Config(reduction="sum"),
    "epsilon 0.01 of the mean cost": MESSI.Config(epsilon=0.01),
    "epsilon 1 of the mean cost": MESSI.Config(epsilon=1.0),
    "epsilon 0.1, absolute": MESSI.Config(epsilon_scale="absolute"),
    "epsilon 1, absolute": MESSI.Config(epsilon=1.0, epsilon_scale="absolute"),
    "10 rounds": MESSI.Config(iterations=10),
    "200 rounds": MESSI.Config(iterations=200),
    "diversity by the equation": MESSI.Config(diversity="frobenius"),
    "MMD": MESSI_MMD,
    "ssi weight 0.001": MESSI.Config(ssi_weight=0.001),
    "ssi weight 0.1": MESSI.Config(ssi_weight=0.1),
    "ssi weight 1": MESSI.Config(ssi_weight=1.0),
    "ssi weight 10": MESSI.Config(ssi_weight=10.0),
    "balance weight 0.2": MESSI.Config(balance_weight=0.2),
    "no regularisers": MESSI.Config(sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0),
}
SMALL_READINGS = ("ERM", "MESSI, defaults", "sum over slots", "diversity by the equation", "MMD")
BASELINE = "MESSI, defaults"
TITLE = "MESSI with one option changed at a time"
EXPLANATION = "A default may be chosen by validation alone"


def at(rate: float) -> str:
    """Return the name of the reading with the defaults and another learning rate."""
    return f"learning rate {rate:g}"
