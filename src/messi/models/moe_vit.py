"""Where the experts go: into blocks of timm's vision transformers, in the place of their MLPs."""

from collections.abc import Callable
from typing import Any

from timm.layers.drop import DropPath
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from messi.core.errors import MessiError
from messi.models import vit
from messi.models.encoder import Encoder
from messi.models.moe_experts import is_plain
from messi.models.moe_layers import MoeLayer, Routing

_TINY = 1e-12


def default_blocks(depth: int) -> tuple[int, ...]:
    """Return every second block of the last third: 8 and 10 of 12."""
    return tuple(range(depth - max(depth // 3, 1), depth, 2))


def place_experts(
    encoder: Encoder,
    layer: Callable[[nn.Module], MoeLayer],
    *,
    method: str,
    blocks: tuple[int, ...] = (),
    drop_path: float = 0.0,
) -> None:
    """Put ``layer(mlp)`` in the place of the MLP of some blocks, by default :func:`default_blocks`.

    With ``drop_path`` blocks are left out at random in training, the last with this probability, the first never.
    """
    network: Any = encoder.network
    if not isinstance(network, VisionTransformer):
        raise MessiError(
            f"{method} needs a vision transformer of timm, such as deit_small_patch16_224; choose one with --backbone."
        )
    depth = len(network.blocks)
    chosen = blocks or default_blocks(depth)
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(depth)):
        raise MessiError(f"moe_blocks must be different numbers from 0 to {depth - 1}, but is {chosen}.")
    for number in chosen:
        block: Any = network.blocks[number]
        if not is_plain(getattr(block, "mlp", None)):
            raise MessiError(
                f"{method} needs blocks whose MLP is Linear, GELU, Linear; block {number} of this backbone has another."
            )
        block.mlp = layer(block.mlp)
    if drop_path:
        _drop_paths(network.blocks, drop_path)
    # Found out when the encoder was built; kernels that know nothing of experts would leave them out.
    encoder.fused = vit.fits(network)


def _drop_paths(blocks: Any, rate: float) -> None:
    for number, block in enumerate(blocks):
        own = rate * number / max(len(blocks) - 1, 1)
        if own:
            block.drop_path1, block.drop_path2 = DropPath(own), DropPath(own)


def take_routings(encoder: Encoder) -> list[Routing]:
    """Return the routing of the last pass in every block that has experts, once."""
    return [module.take() for module in encoder.modules() if isinstance(module, MoeLayer)]


def image_routing(encoder: Encoder, gates: Tensor, images: int) -> Tensor:
    """Return the gates of the class token, or the mean of all tokens where there is none: [N, E] -> [B, E].

    They add up to 1: how much of an expert's output is used, and not how sure the router is of it.
    """
    network: Any = encoder.network
    by_image = gates.unflatten(0, (images, -1))
    shares: Tensor = by_image[:, 0] if network.has_class_token else by_image.mean(1)
    # In training a token of DynMoE may have no expert at all.
    return shares / shares.sum(-1, keepdim=True).clamp_min(_TINY)
