"""The parts of a vision transformer between MLPs that the kernels do not compute, such as experts.

A part begins with the embedding or after such an MLP, and ends before the next one or with the class token.
Legend: B images, T tokens, N = B T rows, W width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from messi.models.fused.precision import weight_grad
from messi.models.fused.vit_backward import Backward
from messi.models.fused.vit_forward import Forward, has_plain_mlp


@dataclass(frozen=True)
class Part:
    """Consecutive blocks of a network, with the names that a pass uses for those of a network."""

    blocks: Sequence[Any]
    cls_token: Tensor
    pos_embed: Tensor
    patch_embed: Any
    embeds: bool
    """Whether it begins with the embedding."""

    @property
    def ends_before_mlp(self) -> bool:
        """Whether it ends before the MLP of its last block, with the sum and its norm."""
        return not has_plain_mlp(self.blocks[-1])

    def parameters(self) -> Iterator[Tensor]:
        """Yield the parameters that the part uses."""
        if self.embeds:
            yield from (self.cls_token, self.pos_embed, *self.patch_embed.parameters())
        for block in self.blocks:
            modules = (block.norm1, block.attn, block.norm2, *([block.mlp] if has_plain_mlp(block) else []))
            for module in modules:
                yield from module.parameters()


def split(network: Any) -> list[Part]:
    """Return the parts of a network."""
    parts: list[Part] = []
    blocks: list[Any] = []
    for number, block in enumerate(network.blocks):
        blocks.append(block)
        if not has_plain_mlp(block) or number == len(network.blocks) - 1:
            parts.append(Part(blocks, network.cls_token, network.pos_embed, network.patch_embed, embeds=not parts))
            blocks = []
    return parts


class ForwardToMlp(Forward):
    """A forward pass that ends before the MLP of its last block."""

    def _last_block(self, x: Tensor, branch: Tensor, bias: Tensor | None) -> Any:
        """Return the sum before the MLP and its norm, both [N, W] in float32."""
        block, low, (batch, tokens, _) = self.network.blocks[-1], self.low, self.shape
        normed, mixed, again = (torch.empty_like(branch, dtype=kind) for kind in (branch.dtype, branch.dtype, x.dtype))
        first = self.kernels.add_norm(x, branch, bias, block.norm1, normed)
        projected = torch.addmm(low[block.attn.qkv.bias], normed, low[block.attn.qkv.weight].mT)
        query, key, value = projected.view(batch, tokens, 3, block.attn.num_heads, -1).unbind(2)
        log_sums = self.attention.attend(query, key, value, mixed.view(query.shape))
        branch = mixed @ low[block.attn.proj.weight].mT
        second = self.kernels.add_norm(first[0], branch, block.attn.proj.bias, block.norm2, again)
        if self._keep:
            self.last = first, normed, projected, mixed, log_sums, second
        return second[0].detach(), again  # detached: the pass would keep its own result alive, and the reverse


class BackwardFromMlp(Backward):
    """The backward pass of :class:`ForwardToMlp`."""

    def _last_block(self, grad: Any, into: Tensor) -> None:
        """Compute the gradients of the last block, given those of the sum before its MLP and of the norm."""
        forward, grads, block = self._forward, self._grads, self._forward.network.blocks[-1]
        low, kernels, (batch, tokens, width) = forward.low, forward.kernels, forward.shape
        first, normed, projected, mixed, log_sums, second = forward.last
        parts, middle = self._parts(1, kernels.norm_parts(batch * tokens, width), 3, width), torch.empty_like(normed)
        kernels.add_norm_backward(*grad, *second, block.norm2.weight, middle, parts[0])
        norm = block.norm2
        grads[norm.weight], grads[norm.bias], grads[block.attn.proj.bias] = kernels.sum_parts(parts)[0]
        grads[block.attn.proj.weight] = weight_grad(middle, mixed)
        shape = (batch, tokens, 3, block.attn.num_heads, -1)
        query, key, value = projected.view(shape).unbind(2)
        parts, projected_grad = self._parts(1, *self._token_parts.shape[1:]), torch.empty_like(projected)
        forward.attention.attend_backward(
            middle @ low[block.attn.proj.weight],
            query,
            key,
            value,
            mixed,
            log_sums,
            projected_grad.view(shape).unbind(2),
            parts[0],
        )
        grads[block.attn.qkv.bias] = kernels.sum_parts(parts).flatten()
        grads[block.attn.qkv.weight] = weight_grad(projected_grad, normed)
        normed_grad = projected_grad @ low[block.attn.qkv.weight]
        kernels.add_norm_backward(middle, normed_grad, *first, block.norm1.weight, into, self._norm_parts[forward.kept])
