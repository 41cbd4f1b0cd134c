"""Running statistics of BatchNorm for weights that no training step has had, such as averaged ones."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from messi.algorithms.common.base import Algorithm
from messi.algorithms.common.inference import autocast, evaluating


@torch.no_grad()
def reestimate(algorithm: Algorithm, batches: Iterable[Tensor]) -> None:
    """Make running statistics the plain mean of those of the batches, as prediction meets them.

    Frozen layers keep theirs, and so do layers that prediction does not use. Without layers to change, no batch is
    drawn.
    """
    algorithm.train()  # frozen layers do not follow
    kind = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 (the base of all of them)
    layers = [m for m in algorithm.modules() if isinstance(m, kind) and m.training]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    with evaluating(algorithm):  # without dropout or mixed styles
        for layer in layers:
            layer.train()
            layer.momentum = None  # equal shares for all batches; the first replaces what there was
            if layer.num_batches_tracked is not None:
                layer.num_batches_tracked.zero_()
        for inputs in batches:
            with autocast(inputs.device):
                algorithm.predict(inputs)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
