"""A faster way through timm's vision transformers on a GPU: same weights, same function, less time.

timm's own forward under autocast spends most of its time between the matrix products. Here those products get bfloat16
copies of the weights, made in one launch, and give float32 gradients of them; what lies between is in ``vit_kernels``
and ``attention_kernels``, the order of it all in ``vit_forward`` and ``vit_backward``. The sum that runs through the
blocks stays in float32, as under autocast; its gradient is kept in bfloat16, which is what the products read of it, and
which makes gradients somewhat less accurate (test_gpu.py says how much). An encoder answers with the class token alone,
so in the last block nothing is computed for the other tokens but their keys and values.
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

from messi.models.vit_backward import Backward
from messi.models.vit_forward import Forward

_PARTS = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
_BLOCK_PARAMETERS = {f"{part}.{kind}" for part in _PARTS for kind in ("weight", "bias")}
_OTHER_PARAMETERS = {
    "cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias", "norm.weight", "norm.bias"
}  # fmt: skip


def fits(network: Any) -> bool:
    """Return whether this is a plain vision transformer, without what :func:`encode` leaves out."""
    if type(network) is not VisionTransformer or not isinstance(network.pos_embed, Tensor):
        return False
    return (
        len(network.blocks) > 1
        and {name for name, _ in network.named_parameters() if not name.startswith("blocks.")} == _OTHER_PARAMETERS
        and network.global_pool == "token"
        and network.pos_embed.shape[1] == network.patch_embed.num_patches + 1
        and not network.dynamic_img_size
        and all(_fits(block) for block in network.blocks)
        and not any(module.p for module in network.modules() if isinstance(module, nn.Dropout))
    )


def _fits(block: Any) -> bool:
    if type(block) is not Block or {name for name, _ in block.named_parameters()} != _BLOCK_PARAMETERS:
        return False
    attention: Any = block.attn
    mlp: Any = block.mlp
    return (
        (type(attention), type(mlp), type(mlp.act)) == (Attention, Mlp, nn.GELU)
        and mlp.act.approximate == "none"
        and attention.head_dim in (16, 32, 64, 128)
        and isinstance(block.drop_path1, nn.Identity)
        and isinstance(block.drop_path2, nn.Identity)
    )


def encode(network: Any, images: Tensor, *, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return the features of images [B, 3, S, S] as ``network(images)`` does: [B, W], float32."""
    x = _ClassToken.apply(images, network, dtype, torch.is_grad_enabled(), *network.parameters())
    return functional.layer_norm(x, x.shape[1:], network.norm.weight, network.norm.bias, network.norm.eps)


class _ClassToken(torch.autograd.Function):
    """Images to the class token after the last block, as one function: its backward keeps its own precisions."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, network: Any, dtype: torch.dtype, keep: bool, *parameters: Tensor) -> Tensor:
        way = Forward(network, images, dtype, keep=keep)
        result = way.run()
        if keep:
            ctx.way, ctx.parameters = way, parameters
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grads = Backward(ctx.way).run(grad)
        del ctx.way
        return None, None, None, None, *(grads.get(parameter) for parameter in ctx.parameters)
