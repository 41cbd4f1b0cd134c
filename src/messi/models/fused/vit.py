"""timm's vision transformers: same weights, same function, less time.

On a GPU under autocast, timm's forward spends most of its time between the matrix products. Here the products use
bfloat16 copies of the weights, made in one launch, and return float32 gradients. The operations between them are in
``vit_kernels`` and ``attention_kernels``, their order in ``vit_forward`` and ``vit_backward``. The residual sum stays
in float32, as under autocast, and so does its gradient: as the sum of two numbers in bfloat16, of which the products
read the first. The encoder only returns the class token, so the last block computes nothing but keys and values for the
other tokens. On a CPU under autocast, this last point and the attention (``CPUAttention``) differ from timm.
``vit_weights`` states which networks are supported.
Legend: B images, T tokens, N = B T rows, W width, H heads.
"""

from typing import Any

import torch
from timm.layers.attention import Attention
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
    weights = read(network)
    tensors = list(weights.tensors())
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    x = _ClassToken.apply(images, weights, dtype, keep, *tensors)
    return functional.layer_norm(x, x.shape[1:], network.norm.weight, network.norm.bias, network.norm.eps)


class _ClassToken(torch.autograd.Function):
    """Images to the class token after the last block, as one function with its own precisions in the backward pass."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weights: Weights, dtype: torch.dtype, keep: bool, *tensors: Tensor) -> Tensor:
        forward_pass = Forward(weights, images, dtype, keep=keep)
        result = forward_pass.run()
        if keep:
            ctx.forward_pass, ctx.tensors = forward_pass, tensors
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grads = Backward(ctx.forward_pass).run(grad)
        del ctx.forward_pass
        return None, None, None, None, *(grads.get(tensor) for tensor in ctx.tensors)
