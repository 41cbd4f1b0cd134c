"""LoRA: the weight W of a linear layer is frozen, and a change of low rank is trained (Hu et al., 2022).

    W + 2 U D        U [out, R], zero at the start; D [R, in]

Every linear layer of the encoder is adapted, in attention and MLP, with a scale alpha / R of 2; this is what Biderman
et al. (2024) found to learn best. The sum is formed in float32 before the layer uses it, so that

- merging is exact: a saved model has plain weights, and every bit of its predictions is that of the training's;
- layers that read ``weight`` directly, such as BEiT's attention, are adapted as well;
- the saved model is used by the fused kernels, by ``messi average`` and by ``--start`` like any other.

The price is that the gradient of the whole weight is computed, as in full fine-tuning. torch's own parametrizations
serve better than ``peft`` here: ``peft`` wraps modules and renames their parameters, adds its output to that of the
layer, so that merging rounds differently, and depends on transformers and accelerate. The tests compare the two.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from messi.core.errors import MessiError

SCALE = 2.0
_WEIGHT = "weight"
_INSIDE = ".parametrizations."


class LowRank(nn.Module):
    """Adds a change of low rank to a weight [out, in]."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.down = nn.Parameter(weight.new_empty(rank, columns))
        self.up = nn.Parameter(weight.new_zeros(rows, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))  # as in the published code

    def forward(self, weight: Tensor) -> Tensor:
        """Return the changed weight, in float32 even under autocast."""
        with torch.autocast(weight.device.type, enabled=False):
            return torch.addmm(weight, self.up, self.down, alpha=SCALE)


def adapt(network: nn.Module, rank: int) -> None:
    """Let a low-rank change of every linear layer be trained."""
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise MessiError(
            f"tune 'lora:{rank}' changes linear layers, and this backbone has none; choose a transformer with "
            "--backbone, or 'last:N'."
        )
    widest = min(min(layer.weight.shape) for layer in layers)
    if rank > widest:
        raise MessiError(f"tune 'lora:{rank}' has a higher rank than {widest}, the smallest width of this backbone.")
    for layer in layers:
        parametrize.register_parametrization(layer, _WEIGHT, LowRank(layer.weight, rank))


def merge(module: nn.Module) -> None:
    """Replace every low-rank change by the weights that it results in."""
    for layer in list(module.modules()):
        if parametrize.is_parametrized(layer, _WEIGHT):
            parametrize.remove_parametrizations(layer, _WEIGHT, leave_parametrized=True)


@torch.no_grad()
def plain_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the state that a module has after :func:`merge`, without changing it."""
    state: dict[str, Tensor] = {name: value for name, value in module.state_dict().items() if _INSIDE not in name}
    for path, layer in module.named_modules():
        if parametrize.is_parametrized(layer, _WEIGHT):
            state[f"{path}.{_WEIGHT}"] = layer.weight.detach()
    return state
