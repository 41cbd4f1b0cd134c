"""BatchNorm statistics for weights that were not trained directly, such as averaged ones."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from messi.algorithms.common.base import Algorithm
from messi.algorithms.common.inference import autocast, evaluating


@torch.no_grad()
def reestimate(algorithm: Algorithm, batches: Iterable[Tensor]) -> None:
    """Replace running statistics by the mean of the statistics of the batches during prediction.

    Frozen layers and layers that prediction does not use keep their statistics. If there is no other layer, no batch
    is drawn.
    """
    algorithm.train()  # except frozen layers, which stay in evaluation mode
    kind = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 (the base of all of them)
    layers = [m for m in algorithm.modules() if isinstance(m, kind) and m.training]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    with evaluating(algorithm):  # without dropout or MixStyle
        for layer in layers:
            layer.train()
            layer.momentum = None  # equal weights for all batches; the first replaces the old statistics
            if layer.num_batches_tracked is not None:
                layer.num_batches_tracked.zero_()
        for inputs in batches:
            with autocast(algorithm, inputs.device):
                algorithm.predict(inputs)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
