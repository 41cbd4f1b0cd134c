"""How the paper's open points may be read: MESSI with one option changed at a time, and what to compare it with."""

from messi.algorithms._base import AlgorithmConfig
from messi.algorithms.erm import Erm
from messi.algorithms.messi import Messi
from messi.experiments._methods import ERM_MOE, MESSI_MMD

READINGS: dict[str, AlgorithmConfig] = {
    "ERM": Erm.Config(),
    "ERM-MoE": ERM_MOE,
    "MESSI, defaults": Messi.Config(),
    "sum over slots": Messi.Config(reduction="sum"),
    "epsilon 0.01 of the mean cost": Messi.Config(epsilon=0.01),
    "epsilon 1 of the mean cost": Messi.Config(epsilon=1.0),
    "epsilon 0.1, absolute": Messi.Config(epsilon_scale="absolute"),
    "epsilon 1, absolute": Messi.Config(epsilon=1.0, epsilon_scale="absolute"),
    "10 rounds": Messi.Config(iterations=10),
    "200 rounds": Messi.Config(iterations=200),
    "diversity by the equation": Messi.Config(diversity="frobenius"),
    "MMD": MESSI_MMD,
    "ssi weight 0.001": Messi.Config(ssi_weight=0.001),
    "ssi weight 0.1": Messi.Config(ssi_weight=0.1),
    "ssi weight 1": Messi.Config(ssi_weight=1.0),
    "ssi weight 10": Messi.Config(ssi_weight=10.0),
    "balance weight 0.2": Messi.Config(balance_weight=0.2),
    "no regularisers": Messi.Config(sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0),
}
SMALL_READINGS = ("ERM", "MESSI, defaults", "sum over slots", "diversity by the equation", "MMD")
BASELINE = "MESSI, defaults"
TITLE = "MESSI with one option changed at a time"
EXPLANATION = "A default may be chosen by validation alone"


def at(rate: float) -> str:
    """Return the name of the reading with the defaults and another learning rate."""
    return f"learning rate {rate:g}"
