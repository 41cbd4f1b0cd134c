"""timm's plain vision transformers: same weights, same function, less time.

On a GPU under autocast, timm's forward spends most of its time between the matrix products. Here the products use
bfloat16 copies of the weights, made in one launch, and return float32 gradients. The operations between them are in
``vit_kernels`` and ``attention_kernels``, their order in ``vit_forward`` and ``vit_backward``. The residual sum stays
in float32, as under autocast. Its gradient is kept in bfloat16, the precision in which the products read it, which
makes gradients slightly less accurate (test_gpu.py measures how much). The encoder only returns the class token, so
the last block computes nothing but keys and values for the other tokens. On a CPU under autocast, this last point and
the attention (``CPUAttention``) differ from timm.
Legend: B images, T tokens, N = B T rows, W width, H heads.
"""

from typing import Any

import torch
from timm.layers.attention import Attention
from timm.layers.mlp import Mlp
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from messi.core import gpu_kernels
from messi.models.fused.vit_backward import Backward
from messi.models.fused.vit_forward import Forward

_PARTS = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
_BLOCK_PARAMETERS = {f"{part}.{kind}" for part in _PARTS for kind in ("weight", "bias")}
_OTHER_PARAMETERS = {
    "cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias", "norm.weight", "norm.bias"
}  # fmt: skip


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


def is_plain(network: Any) -> bool:
    """Return whether :func:`encode` supports all parts of a vision transformer."""
    if type(network) not in (VisionTransformer, FusedVisionTransformer) or not isinstance(network.pos_embed, Tensor):
        return False
    return (
        len(network.blocks) > 1
        and {name for name, _ in network.named_parameters() if not name.startswith("blocks.")} == _OTHER_PARAMETERS
        and network.global_pool == "token"
        and network.pos_embed.shape[1] == network.patch_embed.num_patches + 1
        and not network.dynamic_img_size
        and all(_is_plain_block(block) for block in network.blocks)
        and not any(module.p for module in network.modules() if isinstance(module, nn.Dropout))
    )


def _is_plain_block(block: Any) -> bool:
    if type(block) is not Block or {name for name, _ in block.named_parameters()} != _BLOCK_PARAMETERS:
        return False
    attention: Any = block.attn
    mlp: Any = block.mlp
    return (
        type(attention) in (Attention, CPUAttention)
        and (type(mlp), type(mlp.act)) == (Mlp, nn.GELU)
        and mlp.act.approximate == "none"
        and attention.head_dim in (16, 32, 64, 128)
        and isinstance(block.drop_path1, nn.Identity)
        and isinstance(block.drop_path2, nn.Identity)
    )


def encode_on_cpu(network: Any, images: Tensor) -> Tensor:
    """Return the features of images [B, 3, S, S] by timm's modules: [B, W]."""
    *blocks, last = network.blocks
    x = network._pos_embed(network.patch_embed(images))  # noqa: SLF001 (timm has no public name for it)
    for block in blocks:
        x = block(x)
    token = x[:, :1] + _attend_first(last.attn, last.norm1(x))
    token = token + last.mlp(last.norm2(token))
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
    parameters = list(network.parameters())
    keep = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    x = _ClassToken.apply(images, network, dtype, keep, *parameters)
    return functional.layer_norm(x, x.shape[1:], network.norm.weight, network.norm.bias, network.norm.eps)


class _ClassToken(torch.autograd.Function):
    """Images to the class token after the last block, as one function with its own precisions in the backward pass."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, network: Any, dtype: torch.dtype, keep: bool, *parameters: Tensor) -> Tensor:
        forward_pass = Forward(network, images, dtype, keep=keep)
        result = forward_pass.run()
        if keep:
            ctx.forward_pass, ctx.parameters = forward_pass, parameters
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grads = Backward(ctx.forward_pass).run(grad)
        del ctx.forward_pass
        return None, None, None, None, *(grads.get(parameter) for parameter in ctx.parameters)
