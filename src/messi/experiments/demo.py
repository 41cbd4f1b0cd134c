"""The first thing to try: MESSI and ERM on the embedded data, one environment held out.

Claim: none of the paper's; it shows the whole way from data to report on real digits.
Command: messi demo
Cost: about 2 minutes on 2 CPU cores.
"""

from messi.algorithms._base import AlgorithmConfig
from messi.algorithms.erm import Erm
from messi.algorithms.messi import Messi
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMnist
from messi.engine.config import RunConfig, TrainingConfig
from messi.models.encoder import EncoderConfig


def runs(*, seed: int = 0) -> list[RunConfig]:
    """Return the two runs: the same data, network, schedule and seed, only the method differs."""
    data = RotatedColoredMnist(environments=10)
    algorithms: tuple[AlgorithmConfig, ...] = (Erm.Config(), Messi.Config())
    return [
        RunConfig(
            data=data,
            target=(data.test_domain,),
            algorithm=algorithm,
            encoder=EncoderConfig(backbone="tiny_cnn"),
            training=TrainingConfig(steps=300, evaluate_every=25),
            seed=seed,
        )
        for algorithm in algorithms
    ]
