"""Experts in the blocks of timm's vision transformers, in place of their MLPs.

Legend: B images, N tokens of all images, E experts, W width.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from messi.core.batch import ExpertUse, Inspection
from messi.core.errors import MessiError
from messi.models.drop_path import DropPath
from messi.models.encoder import Encoder
from messi.models.experts import is_plain
from messi.models.fused.replace import fuse
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
    """Replace the MLP of some blocks by ``layer(mlp)``, by default of :func:`default_blocks`.

    With ``drop_path``, blocks are skipped at random in training, the last with this probability, the first never.
    """
    network: Any = encoder.network
    if not isinstance(network, VisionTransformer):
        raise MessiError(
            f"{method} requires a timm vision transformer, such as deit_small_patch16_224; choose one with --backbone."
        )
    depth = len(network.blocks)
    chosen = blocks or default_blocks(depth)
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(depth)):
        raise MessiError(f"moe_blocks must be distinct numbers from 0 to {depth - 1}, but is {chosen}.")
    for number in chosen:
        block: Any = network.blocks[number]
        if not is_plain(getattr(block, "mlp", None)):
            raise MessiError(
                f"{method} requires blocks whose MLP is Linear, GELU, Linear; block {number} of this backbone has "
                "another one. Choose a plain vision transformer with --backbone."
            )
        block.mlp = layer(block.mlp)
    if drop_path:
        _drop_paths(network.blocks, drop_path)
    fuse(network)  # again: the kernels must leave the experts out, and have no stochastic depth


def _drop_paths(blocks: Any, rate: float) -> None:
    for number, block in enumerate(blocks):
        own = rate * number / max(len(blocks) - 1, 1)
        if own:
            block.drop_path1, block.drop_path2 = DropPath(own), DropPath(own)


def take_routings(encoder: Encoder) -> list[Routing]:
    """Return the routing of the last pass in every block that has experts, and release it."""
    return [module.take() for module in encoder.modules() if isinstance(module, MoeLayer)]


def release_routings(encoder: Encoder) -> None:
    """Forget the routing of the last pass, which keeps the graph of the pass alive."""
    for module in encoder.modules():
        if isinstance(module, MoeLayer):
            module.release()


def image_routing(encoder: Encoder, gates: Tensor, images: int) -> Tensor:
    """Return the gates of the class token, or the mean over all tokens if there is none: [N, E] -> [B, E].

    They sum to 1: they state how much of an expert's output is used, not how confident the router is.
    """
    shares = _of_images(encoder, gates, images)
    # In training a token of DynMoE may have no expert at all.
    return shares / shares.sum(-1, keepdim=True).clamp_min(_TINY)


def image_outputs(encoder: Encoder, outputs: Tensor, images: int) -> Tensor:
    """Return the expert outputs for the class token, or their mean over all tokens: [E, N, W] -> [E, B, W]."""
    return _of_images(encoder, outputs.transpose(0, 1), images).transpose(0, 1)


def _of_images(encoder: Encoder, tokens: Tensor, images: int) -> Tensor:
    network: Any = encoder.network
    by_image = tokens.unflatten(0, (images, -1))
    of_images: Tensor = by_image[:, 0] if network.has_class_token else by_image.mean(1)
    return of_images


@contextmanager
def watched_experts(encoder: Encoder) -> Iterator[list[Tensor]]:
    """Yield a list that receives the expert outputs [E, N, W] of the last block with experts for every forward pass.

    These are the raw outputs; OMoE makes those of a token's chosen experts orthogonal afterwards.
    """
    layer = [module for module in encoder.modules() if isinstance(module, MoeLayer)][-1]
    outputs: list[Tensor] = []

    def watch(_module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        outputs.append(layer.experts(inputs[0].flatten(0, -2)))  # the layer may compute only those that tokens chose

    handle = layer.register_forward_hook(watch)
    try:
        yield outputs
    finally:
        handle.remove()


def inspect_blocks(encoder: Encoder, classifier: nn.Module, inputs: Tensor) -> Inspection:
    """Return the logits, features, routing and expert outputs of a classifier on an encoder with experts."""
    with watched_experts(encoder) as outputs:
        encoded = encoder(inputs)
    experts = ExpertUse(
        "blocks",
        routing=image_routing(encoder, take_routings(encoder)[-1].gates, len(inputs)),
        outputs=image_outputs(encoder, outputs[-1], len(inputs)),
    )
    return Inspection(logits=classifier(encoded), encoded=encoded, classified=encoded, experts=experts)
