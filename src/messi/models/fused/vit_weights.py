"""The weights of a vision transformer in the form in which its kernels read them.

Whatever multiplies a weight or adds to it becomes part of the weight before the pass: LayerScale, low-rank changes, the
positions of class and register tokens. Autograd returns the gradients of the parts. None of it costs anything per
token, and the passes know only one kind of block.
Legend: T tokens, W width, K numbers per patch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from timm.layers.activations import QuickGELU
from timm.layers.attention import Attention
from timm.layers.layer_scale import LayerScale
from timm.layers.mlp import Mlp
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from torch.nn import functional

_ALIGNED = 8
"""Rows of a matrix product begin at 16 bytes, or tensor cores read them slowly: 588 numbers of a patch of 14 x 14."""


class Linear(NamedTuple):
    """Weight [out, in] and bias [out] of a linear layer."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class BlockWeights:
    """The weights of one block."""

    norm1: nn.LayerNorm
    qkv: Linear
    mix: Linear
    """The projection after attention."""
    norm2: nn.LayerNorm
    fc1: Linear
    fc2: Linear
    heads: int

    def tensors(self) -> Iterator[Tensor]:
        """Yield all weights."""
        for part in (self.norm1, self.qkv, self.mix, self.norm2, self.fc1, self.fc2):
            yield from (part.weight, part.bias)


@dataclass(frozen=True)
class Weights:
    """The weights of a network without its last norm."""

    patch_size: tuple[int, int]
    patches: Tensor
    """Weight of the embedding, [W, K]."""
    prefix: int
    """Number of tokens before the patches."""
    table: Tensor
    """What is added to the embedded patches, after rows of zeros for the prefix: [T, W]."""
    norm: nn.LayerNorm | None
    """A norm before the blocks."""
    blocks: tuple[BlockWeights, ...]
    quick: bool
    """Whether GELU is approximated by x sigmoid(1.702 x), as in OpenAI's CLIP."""

    def tensors(self) -> Iterator[Tensor]:
        """Yield all weights."""
        yield from (self.patches, self.table)
        if self.norm:
            yield from (self.norm.weight, self.norm.bias)
        for block in self.blocks:
            yield from block.tensors()


def read(network: Any) -> Weights:
    """Return the weights of a network for which :func:`is_plain` holds."""
    embed, prefix = network.patch_embed, network.num_prefix_tokens
    weight, bias, positions = embed.proj.weight.flatten(1), embed.proj.bias, network.pos_embed[0]
    if missing := -weight.shape[1] % _ALIGNED:
        weight = functional.pad(weight, (0, missing))
    if bias is None:
        bias = positions.new_zeros(len(weight))
    if network.no_embed_class:
        positions = functional.pad(positions, (0, 0, prefix, 0))
    tokens = [token[0] for token in (network.cls_token, network.reg_token) if token is not None]
    return Weights(
        patch_size=embed.patch_size,
        patches=weight,
        prefix=prefix,
        table=torch.cat([*tokens, bias.expand(embed.num_patches, -1)]) + positions,
        norm=network.norm_pre if isinstance(network.norm_pre, nn.LayerNorm) else None,
        blocks=tuple(_read_block(block) for block in network.blocks),
        quick=isinstance(network.blocks[0].mlp.act, QuickGELU),
    )


def _read_block(block: Any) -> BlockWeights:
    return BlockWeights(
        norm1=block.norm1,
        qkv=Linear(block.attn.qkv.weight, block.attn.qkv.bias),
        mix=_scaled(block.attn.proj, block.ls1),
        norm2=block.norm2,
        fc1=Linear(block.mlp.fc1.weight, block.mlp.fc1.bias),
        fc2=_scaled(block.mlp.fc2, block.ls2),
        heads=block.attn.num_heads,
    )


def _scaled(layer: Any, scale: Any) -> Linear:
    """Return a layer with the scale of its output as part of its weights."""
    if not isinstance(scale, LayerScale):
        return Linear(layer.weight, layer.bias)
    return Linear(layer.weight * scale.gamma[:, None], layer.bias * scale.gamma)


def is_plain(network: Any) -> bool:
    """Return whether the kernels support all parts of a network: no parameter or layer may be left out."""
    if not isinstance(network, VisionTransformer) or not isinstance(network.pos_embed, Tensor):
        return False
    embed: Any = network.patch_embed
    blocks: Any = network.blocks
    positions = embed.num_patches + (0 if network.no_embed_class else network.num_prefix_tokens)
    return (
        network.global_pool == "token"
        and _parameters(network.norm_pre, network.norm, embed.proj, *blocks)
        | {token for token in (network.cls_token, network.reg_token, network.pos_embed) if token is not None}
        == set(network.parameters())
        and network.pos_embed.shape[1] == positions
        and not (network.dynamic_img_size or embed.dynamic_img_pad)
        and isinstance(network.patch_drop, nn.Identity)
        and (isinstance(network.norm_pre, nn.Identity) or _is_affine(network.norm_pre))
        and _is_affine(network.norm)
        and len(blocks) > 1
        and all(_is_plain_block(block) for block in blocks)
        and len({(type(block.mlp.act), block.mlp.fc1.out_features) for block in blocks}) == 1
        and not any(module.p for module in network.modules() if isinstance(module, nn.Dropout))
    )


def _is_plain_block(block: Any) -> bool:
    if type(block) is not Block or type(block.mlp) is not Mlp or type(block.attn).forward is not Attention.forward:
        return False
    norm: Any = block.norm1
    attention: Any = block.attn
    mlp: Any = block.mlp
    linear = (attention.qkv, attention.proj, mlp.fc1, mlp.fc2)
    return (
        _parameters(norm, block.norm2, block.ls1, block.ls2, *linear) == set(block.parameters())
        and all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in linear)
        and _is_affine(norm)
        and _is_affine(block.norm2)
        and all(isinstance(scale, nn.Identity | LayerScale) for scale in (block.ls1, block.ls2))
        and (type(mlp.act) is QuickGELU or (type(mlp.act) is nn.GELU and mlp.act.approximate == "none"))
        and attention.head_dim in (16, 32, 64, 128)
        and attention.attn_dim == attention.proj.out_features == norm.normalized_shape[0]
        and isinstance(block.drop_path1, nn.Identity)
        and isinstance(block.drop_path2, nn.Identity)
    )


def _parameters(*modules: nn.Module) -> set[Tensor]:
    return {parameter for module in modules for parameter in module.parameters()}


def _is_affine(norm: Any) -> bool:
    return isinstance(norm, nn.LayerNorm) and all(isinstance(part, Tensor) for part in (norm.weight, norm.bias))
