"""timm's vision transformers: same weights, same function, less time.

On a GPU under autocast, timm's forward spends most of its time between the matrix products. Here the products use
bfloat16 copies of the weights, made in one launch, and return float32 gradients. The operations between them are in
``vit_kernels``, ``gelu_kernels`` and ``attention_kernels``, their order in ``vit_forward`` and ``vit_backward``. The
residual sum stays in float32, as under autocast, and so does its gradient: as the sum of two numbers in bfloat16, of
which the products read the first. The encoder only returns the class token, so the last block computes nothing but keys
and values for the other tokens. On a CPU under autocast, this last point and the attention (``CPUAttention``) differ
from timm. ``vit_weights`` states which networks are supported. A block with another MLP, such as experts, calls it as a
module between two parts of the network, each of which is one function.
Legend: B images, T tokens, N = B T rows, W width, H heads.
"""

from typing import Any

import torch
from timm.layers.attention import Attention
from timm.layers.mlp import Mlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from messi.core import gpu_kernels
from messi.models.fused.vit_backward import Backward
from messi.models.fused.vit_forward import Forward
from messi.models.fused.vit_weights import Weights, is_plain, read


class FusedVisionTransformer(VisionTransformer):
    """A vision transformer that encodes images with kernels where they can run."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the features of images [B, 3, S, S]: [B, W]."""
        if not args and not kwargs and gpu_kernels.run_under_autocast(x):
            return encode(self, x)
        if not args and not kwargs and x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            return encode_on_cpu(self, x)
        return super().forward(x, *args, **kwargs)


class CPUAttention(Attention):
    """Attention that multiplies matrices by oneDNN in bfloat16 on a CPU.

    torch's fused attention gains nothing from bfloat16 there: its backward pass was slower than in float32.
    """

    may_fuse: bool
    """What timm decided."""

    @property  # type: ignore[misc]  # final for torch.jit only
    def fused_attn(self) -> bool:
        """Whether timm's code calls torch's fused attention."""
        return self.may_fuse and not torch.is_autocast_enabled("cpu")


def fuse(network: nn.Module) -> None:
    """Replace attention, and a vision transformer if it is plain; restore it if it no longer is."""
    for module in network.modules():
        if type(module) is Attention:
            module.__class__ = CPUAttention
            module.__dict__["may_fuse"] = module.__dict__.pop("fused_attn")
    if type(network) in (VisionTransformer, FusedVisionTransformer):
        network.__class__ = FusedVisionTransformer if is_plain(network) else VisionTransformer


def encode_on_cpu(network: Any, images: Tensor) -> Tensor:
    """Return the features of images [B, 3, S, S] by timm's modules: [B, W]."""
    *blocks, last = network.blocks
    x = network._pos_embed(network.patch_embed(images))  # noqa: SLF001 (timm has no public name for it)
    x = network.norm_pre(x)
    for block in blocks:
        x = block(x)
    token = x[:, :1] + last.ls1(_attend_first(last.attn, last.norm1(x)))
    token = token + last.ls2(last.mlp(last.norm2(token)))
    features: Tensor = network.norm(token)[:, 0]
    return features


def _attend_first(attention: Any, x: Tensor) -> Tensor:
    """Return the attention of the first of tokens [B, T, W]: [B, 1, W]."""
    width = x.shape[-1]
    weights, biases = (one.split((width, 2 * width)) for one in (attention.qkv.weight, attention.qkv.bias))
    query = functional.linear(x[:, :1], weights[0], biases[0]).unflatten(-1, (attention.num_heads, -1))
    keys, values = functional.linear(x, weights[1], biases[1]).unflatten(-1, (2, attention.num_heads, -1)).unbind(2)
    mixed = functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in (query, keys, values)))
    result: Tensor = attention.proj(mixed.transpose(1, 2).flatten(2))
    return result


def encode(network: Any, images: Tensor, *, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return the features of images [B, 3, S, S] in float32: [B, W]."""
    weights, mlps = read(network), [block.mlp for block in network.blocks if type(block.mlp) is not Mlp]
    shape = len(images), network.patch_embed.num_patches + network.num_prefix_tokens, network.embed_dim
    x, branch = images, None
    for number, part in enumerate(weights.parts()):
        tensors = list(part.tensors())
        needed = (x, *tensors) if number else tensors
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in needed)
        x, *normed = _Part.apply(x, branch, part, shape, dtype, keep, *tensors)
        branch = mlps[number](normed[0].view(shape)).flatten(0, 1).to(dtype) if normed else None
    if branch is not None:
        x = x.view(shape)[:, 0] + branch.view(shape)[:, 0]
    return functional.layer_norm(x, x.shape[1:], network.norm.weight, network.norm.bias, network.norm.eps)


class _Part(torch.autograd.Function):
    """A part of a network as one function with its own precisions in the backward pass.

    It takes images, or a sum and the term to add to it, and returns what :meth:`Forward.run` does.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        branch: Tensor | None,
        weights: Weights,
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        keep: bool,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        whole = weights.embedding is not None or not ctx.needs_input_grad[0]
        forward_pass = Forward(weights, (x, branch), shape, dtype, keep=keep, whole=whole)
        result = forward_pass.run()
        if keep:
            ctx.forward_pass, ctx.tensors, ctx.whole = forward_pass, tensors, whole
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        backward_pass = Backward(ctx.forward_pass)
        grads = backward_pass.run(*above)
        del ctx.forward_pass
        start = None if ctx.whole else backward_pass.start
        return start, start, None, None, None, None, *(grads.get(tensor) for tensor in ctx.tensors)
