"""The base class of methods with experts in the blocks of the encoder."""

from typing import ClassVar

from messi.algorithms.common.base import LossAlgorithm
from messi.core.errors import MessiError
from messi.models.encoder import Encoder
from messi.models.moe_layers import MoeLayer
from messi.models.tuning import Tuning, TuningKind


class ExpertsInBlocks(LossAlgorithm):
    """A method whose experts and routers are part of the encoder, so that these blocks must train."""

    tunings: ClassVar[tuple[TuningKind, ...]] = ("full", "last")
    whole_inputs: ClassVar[bool] = False
    encoder: Encoder

    def restrict(self, tuning: Tuning) -> None:
        """Let only a part of the encoder train, which must include all experts: their routers are new."""
        super().restrict(tuning)
        layers = [module for module in self.encoder.modules() if isinstance(module, MoeLayer)]
        if not all(parameter.requires_grad for layer in layers for parameter in layer.parameters()):
            raise MessiError(
                f"tune '{tuning}' freezes blocks with experts of {type(self).__name__}; train more blocks, or choose "
                "later ones with --moe-blocks."
            )
