"""The first thing to try: MESSI and ERM on the embedded data, one environment held out.

Claim: none of the paper's; it shows the whole way from data to report on real digits. The balance weight is 0.1
instead of the paper's 0.02, with which the router can send every input to one expert on data as small as this.
Command: messi demo
Cost: about a minute on 2 CPU cores.
"""

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import RunConfig, TrainingConfig
from messi.models.encoder import EncoderConfig


def runs(*, seed: int = 0) -> list[RunConfig]:
    """Return the two runs: the same data, network, schedule and seed, only the method differs."""
    data = RotatedColoredMNIST(environments=10)
    algorithms: tuple[AlgorithmConfig, ...] = (ERM.Config(), MESSI.Config(balance_weight=0.1))
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
