"""timm's plain vision transformers on a GPU: same weights, same function, less time.

Under autocast, timm's forward spends most of its time between the matrix products. Here the products use bfloat16
copies of the weights, made in one launch, and return float32 gradients. The operations between them are in
``vit_kernels`` and ``attention_kernels``, their order in ``vit_forward`` and ``vit_backward``. The residual sum stays
in float32, as under autocast. Its gradient is kept in bfloat16, the precision in which the products read it, which
makes gradients slightly less accurate (test_gpu.py measures how much). The encoder only returns the class token, so
the last block computes nothing but keys and values for the other tokens. A block with another MLP, such as experts,
calls it as a module between two parts of the network (``vit_parts``), each of which is one function.
Legend: B images, T tokens, N = B T rows, W width, H heads.
"""

from typing import Any

import torch
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from messi.core import gpu_kernels
from messi.models.fused.vit_backward import Backward
from messi.models.fused.vit_forward import Forward, has_plain_mlp
from messi.models.fused.vit_parts import BackwardFromMlp, ForwardToMlp, Part, split

_ATTENTION = ("norm1", "attn.qkv", "attn.proj", "norm2")
_ATTENTION_PARAMETERS, _MLP_PARAMETERS = (
    {f"{part}.{kind}" for part in parts for kind in ("weight", "bias")}
    for parts in (_ATTENTION, ("mlp.fc1", "mlp.fc2"))
)
_OTHER_PARAMETERS = {
    "cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias", "norm.weight", "norm.bias"
}  # fmt: skip


class FusedVisionTransformer(VisionTransformer):
    """A vision transformer that encodes images with kernels where they can run."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the features of images [B, 3, S, S]: [B, W]."""
        if not args and not kwargs and gpu_kernels.run_under_autocast(x):
            return encode(self, x)
        return super().forward(x, *args, **kwargs)


def fuse(network: nn.Module) -> None:
    """Replace a vision transformer if it is plain, and restore it if it no longer is."""
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
    """Return whether a block is plain except for its MLP, which may be of another kind."""
    names = {name for name, _ in block.named_parameters()}
    mlp = _MLP_PARAMETERS if has_plain_mlp(block) else {name for name in names if name.startswith("mlp.")}
    if type(block) is not Block or names != _ATTENTION_PARAMETERS | mlp:
        return False
    attention: Any = block.attn
    return (
        type(attention) is Attention
        and attention.head_dim in (16, 32, 64, 128)
        and isinstance(block.drop_path1, nn.Identity)
        and isinstance(block.drop_path2, nn.Identity)
    )


def encode(network: Any, images: Tensor, *, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return the features of images [B, 3, S, S] in float32: [B, W]."""
    x, branch, shape = images, None, (len(images), *network.pos_embed.shape[1:])
    for part in split(network):
        parameters = list(part.parameters())
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *parameters))
        result = _PartOfNetwork.apply(x, branch, part, dtype, keep, *parameters)
        if part.ends_before_mlp:
            x, normed = result
            branch = part.blocks[-1].mlp(normed.view(shape)).flatten(0, 1).to(dtype)
        else:
            x, branch = result, None
    if branch is not None:
        x = x.view(shape)[:, 0] + branch.view(shape)[:, 0]
    return functional.layer_norm(x, x.shape[1:], network.norm.weight, network.norm.bias, network.norm.eps)


class _PartOfNetwork(torch.autograd.Function):
    """A part as one function with its own precisions in the backward pass.

    It takes images or a sum and the term to add to it, and returns the class token after the last block, or the sum
    before the MLP of that block and its norm.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, branch: Tensor | None, part: Part, dtype: torch.dtype, keep: bool, *parameters: Tensor
    ) -> Any:
        start = x if branch is None else (x, branch)
        kind = ForwardToMlp if part.ends_before_mlp else Forward
        forward_pass = kind(part, start, dtype, keep=keep, whole=not ctx.needs_input_grad[0])
        result = forward_pass.run()
        if keep:
            ctx.forward_pass, ctx.parameters = forward_pass, parameters
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        half = ctx.forward_pass.network.ends_before_mlp
        backward_pass = (BackwardFromMlp if half else Backward)(ctx.forward_pass)
        grads = backward_pass.run([grad.contiguous() for grad in above] if half else above[0])
        del ctx.forward_pass
        start = backward_pass.start_grad if ctx.needs_input_grad[0] else None
        return start, start, None, None, None, *(grads.get(parameter) for parameter in ctx.parameters)
