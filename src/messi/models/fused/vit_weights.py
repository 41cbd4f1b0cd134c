"""The weights of a vision transformer in the form in which its kernels read them.

Whatever multiplies a weight or adds to it becomes part of the weight before the pass: LayerScale, low-rank changes, the
positions of class and register tokens. Autograd returns the gradients of the parts. None of it costs anything per
token, and the passes know only one kind of block.
Legend: T tokens, W width, K numbers per patch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
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
    mlp: tuple[Linear, ...]
    """Two layers, or none if the MLP is a module that the kernels do not compute, such as experts."""
    heads: int

    def tensors(self) -> Iterator[Tensor]:
        """Yield all weights."""
        for norm in (self.norm1, self.norm2):
            yield from (norm.weight, norm.bias)
        for layer in (self.qkv, self.mix, *self.mlp):
            yield from layer


@dataclass(frozen=True)
class Embedding:
    """The weights before the blocks."""

    patch_size: tuple[int, int]
    patches: Tensor
    """[W, K]"""
    prefix: int
    """Number of tokens before the patches."""
    table: Tensor
    """What is added to the embedded patches, after rows of zeros for the prefix: [T, W]."""
    norm: nn.LayerNorm | None

    def tensors(self) -> Iterator[Tensor]:
        """Yield all weights."""
        yield from (self.patches, self.table)
        if self.norm:
            yield from (self.norm.weight, self.norm.bias)


@dataclass(frozen=True)
class Weights:
    """The weights of a network without its last norm, or of consecutive blocks of one."""

    embedding: Embedding | None
    blocks: tuple[BlockWeights, ...]
    quick: bool
    """Whether GELU is approximated by x sigmoid(1.702 x), as in OpenAI's CLIP."""

    def tensors(self) -> Iterator[Tensor]:
        """Yield all weights."""
        if self.embedding:
            yield from self.embedding.tensors()
        for block in self.blocks:
            yield from block.tensors()

    def parts(self) -> Iterator["Weights"]:
        """Yield the parts of the network: each ends before an MLP that is another module, or with the last block."""
        ends = [number + 1 for number, block in enumerate(self.blocks[:-1]) if not block.mlp]
        for start, end in pairwise([0, *ends, len(self.blocks)]):
            yield Weights(None if start else self.embedding, self.blocks[start:end], self.quick)


def read(network: Any) -> Weights:
    """Return the weights of a network for which :func:`is_plain` holds."""
    quick = any(isinstance(getattr(block.mlp, "act", None), QuickGELU) for block in network.blocks)
    return Weights(_read_embedding(network), tuple(_read_block(block) for block in network.blocks), quick)


def _read_embedding(network: Any) -> Embedding:
    embed, prefix = network.patch_embed, network.num_prefix_tokens
    weight, bias, positions = embed.proj.weight.flatten(1), embed.proj.bias, network.pos_embed[0]
    if missing := -weight.shape[1] % _ALIGNED:
        weight = functional.pad(weight, (0, missing))
    if bias is None:
        bias = positions.new_zeros(len(weight))
    if network.no_embed_class:
        positions = functional.pad(positions, (0, 0, prefix, 0))
    tokens = [token[0] for token in (network.cls_token, network.reg_token) if token is not None]
    return Embedding(
        patch_size=embed.patch_size,
        patches=weight,
        prefix=prefix,
        table=torch.cat([*tokens, bias.expand(embed.num_patches, -1)]) + positions,
        norm=network.norm_pre if isinstance(network.norm_pre, nn.LayerNorm) else None,
    )


def _read_block(block: Any) -> BlockWeights:
    mlp: Any = block.mlp if type(block.mlp) is Mlp else None
    return BlockWeights(
        norm1=block.norm1,
        qkv=Linear(block.attn.qkv.weight, block.attn.qkv.bias),
        mix=_scaled(block.attn.proj, block.ls1),
        norm2=block.norm2,
        mlp=(Linear(mlp.fc1.weight, mlp.fc1.bias), _scaled(mlp.fc2, block.ls2)) if mlp else (),
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
    mlps: list[Any] = [block.mlp for block in blocks if type(getattr(block, "mlp", None)) is Mlp]
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
        and len({(type(mlp.act), mlp.fc1.out_features) for mlp in mlps}) < 2
        and not any(module.p for module in network.modules() if isinstance(module, nn.Dropout))
    )


def _is_plain_block(block: Any) -> bool:
    """Return whether a block is plain, except that its MLP may be any module if its output is not scaled."""
    if type(block) is not Block or type(block.attn).forward is not Attention.forward:
        return False
    norm: Any = block.norm1
    attention: Any = block.attn
    linear: list[Any] = [attention.qkv, attention.proj]
    others = [block.mlp]
    if type(block.mlp) is Mlp:
        linear += [block.mlp.fc1, block.mlp.fc2]
        others = []
    return (
        _parameters(norm, block.norm2, block.ls1, block.ls2, *linear, *others) == set(block.parameters())
        and all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in linear)
        and _is_affine(norm)
        and _is_affine(block.norm2)
        and all(isinstance(scale, nn.Identity | LayerScale) for scale in (block.ls1, block.ls2))
        and (isinstance(block.ls2, nn.Identity) if others else _is_gelu(block.mlp.act))
        and attention.head_dim in (16, 32, 64, 128)
        and attention.attn_dim == attention.proj.out_features == norm.normalized_shape[0]
        and isinstance(block.drop_path1, nn.Identity)
        and isinstance(block.drop_path2, nn.Identity)
    )


def _is_gelu(activation: Any) -> bool:
    return type(activation) is QuickGELU or (type(activation) is nn.GELU and activation.approximate == "none")


def _parameters(*modules: nn.Module) -> set[Tensor]:
    return {parameter for module in modules for parameter in module.parameters()}


def _is_affine(norm: Any) -> bool:
    return isinstance(norm, nn.LayerNorm) and all(isinstance(part, Tensor) for part in (norm.weight, norm.bias))
