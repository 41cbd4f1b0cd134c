"""The backward pass of a vision transformer; ``vit`` explains how it differs from autograd's.

Legend: B images, T tokens, N = B T rows, W width, F the blocks that train, without the last.
"""

import torch
from torch import Tensor
from torch.nn import functional

from messi.models.fused.precision import weight_grad
from messi.models.fused.vit_forward import Forward


class Backward:
    """The backward pass. The gradient of the residual sum is kept in the precision of the matrix products."""

    def __init__(self, forward: Forward) -> None:
        self._forward, self._grads = forward, dict[Tensor, Tensor]()
        kept, (batch, tokens, width) = forward.kept, forward.shape
        self._middle, self._outer = forward.stack(width), forward.stack(width)
        """Gradients of the sums before the MLP and after the block."""
        self._projected = forward.stack(3 * width)
        hidden = forward.hidden.shape[2]
        self._norm_parts = self._parts(2 * kept + 1, forward.kernels.norm_parts(batch * tokens, width), 3, width)
        """Gradients of the first norm of every block, then of the second norm of every block but the last."""
        self._gelu_parts = self._parts(kept, forward.kernels.gelu_parts(batch * tokens, hidden), hidden)
        heads = forward.network.blocks[0].attn.num_heads
        self._token_parts = self._parts(kept, forward.attention.token_parts(batch, tokens), 3, heads, width // heads)

    def _parts(self, *shape: int) -> Tensor:
        return torch.empty(shape, device=self._forward.patches.device)

    def run(self, grad: Tensor) -> dict[Tensor, Tensor]:
        """Return the gradients of all parameters except the last norm, given the class tokens' gradient [B, W].

        Those of frozen blocks at the beginning, and of the embedding before them, are not computed.
        """
        forward = self._forward
        first = torch.empty_like(self._outer[0])
        self._last_block(grad, self._outer[-1] if forward.kept else first)
        for number in reversed(range(forward.kept)):
            self._block(number, self._outer[number - 1] if number else first)
        self._parameters()
        if forward.first:
            return self._grads
        projection = forward.network.patch_embed.proj
        self._grads[projection.weight] = weight_grad(first, forward.patches).view(projection.weight.shape)
        table = first.view(forward.shape).sum(0, dtype=torch.float32)
        self._grads[forward.network.pos_embed], self._grads[forward.network.cls_token] = table[None], table[None, :1]
        self._grads[projection.bias] = table[1:].sum(0)
        return self._grads

    def _block(self, number: int, into: Tensor) -> None:
        """Compute the gradients of one of the F blocks, and write that of the sum before it ``into`` a tensor."""
        forward, (batch, tokens, _) = self._forward, self._forward.shape
        block = forward.network.blocks[forward.first + number]
        low, kernels, outer, middle = forward.low, forward.kernels, self._outer[number], self._middle[number]
        first, second = forward.sums.pop()
        hidden = forward.hidden[number]
        kernels.gelu_backward(outer @ low[block.mlp.fc2.weight], hidden, self._gelu_parts[number])
        parts = self._norm_parts[forward.kept + 1 + number]
        grad = hidden @ low[block.mlp.fc1.weight]
        kernels.add_norm_backward(outer, grad, *second, block.norm2.weight, middle, parts)
        shape = (batch, tokens, 3, block.attn.num_heads, -1)
        projected = self._projected[number]
        query, key, value = forward.projected.pop().view(shape).unbind(2)
        forward.attention.attend_backward(
            middle @ low[block.attn.proj.weight],
            query,
            key,
            value,
            forward.mixed[number],
            forward.log_sums.pop(),
            projected.view(shape).unbind(2),
            self._token_parts[number],
        )
        grad = projected @ low[block.attn.qkv.weight]
        kernels.add_norm_backward(middle, grad, *first, block.norm1.weight, into, self._norm_parts[number])

    def _last_block(self, grad: Tensor, into: Tensor) -> None:
        """Compute the gradients of the last block, in which only the class tokens have queries."""
        forward, grads, block, (batch, tokens, width) = (
            self._forward,
            self._grads,
            self._forward.network.blocks[-1],
            self._forward.shape,
        )
        low, kernels = forward.low, forward.kernels
        first, normed, query, rest, mixed, log_sums, second, again, hidden, active = forward.last
        grads[block.mlp.fc2.bias] = grad.sum(0)
        grad = grad.to(again.dtype)
        grads[block.mlp.fc2.weight] = weight_grad(grad, active)
        parts = self._parts(1, kernels.gelu_parts(*hidden.shape), hidden.shape[1])
        kernels.gelu_backward(grad @ low[block.mlp.fc2.weight], hidden, parts[0])
        grads[block.mlp.fc1.bias], grads[block.mlp.fc1.weight] = (
            kernels.sum_parts(parts)[0],
            weight_grad(hidden, again),
        )
        parts, middle = self._parts(1, kernels.norm_parts(batch, width), 3, width), torch.empty_like(grad)
        hidden_grad = hidden @ low[block.mlp.fc1.weight]
        kernels.add_norm_backward(grad, hidden_grad, *second, block.norm2.weight, middle, parts[0])
        norm = block.norm2
        grads[norm.weight], grads[norm.bias], grads[block.attn.proj.bias] = kernels.sum_parts(parts)[0]
        grads[block.attn.proj.weight] = weight_grad(middle, mixed.view(batch, width))
        asked, others = torch.empty_like(query), torch.empty_like(rest)
        parts = self._parts(1, *self._token_parts.shape[1:])
        forward.attention.attend_backward(
            middle @ low[block.attn.proj.weight],
            query,
            *rest.unbind(2),
            mixed,
            log_sums,
            (asked, *others.unbind(2)),
            parts[0],
        )
        asked, others = asked.view(batch, width), others.view(batch * tokens, 2 * width)
        weight, asking = low[block.attn.qkv.weight], normed.view(forward.shape)[:, 0]
        grads[block.attn.qkv.bias] = kernels.sum_parts(parts).flatten()
        grads[block.attn.qkv.weight] = torch.cat([weight_grad(asked, asking), weight_grad(others, normed)])
        grad = others @ weight[width:]
        grad.view(forward.shape)[:, 0] += asked @ weight[:width]
        # The sum of the other tokens is not used any further, so its gradient is zero.
        middle = functional.pad(middle.view(batch, 1, width), (0, 0, 0, tokens - 1)).view(-1, width)
        kernels.add_norm_backward(middle, grad, *first, block.norm1.weight, into, self._norm_parts[forward.kept])

    def _parameters(self) -> None:
        """Store the parameter gradients of the F blocks, and of the first norm of the last."""
        forward, grads = self._forward, self._grads
        blocks = forward.network.blocks[forward.first :]
        norms = forward.kernels.sum_parts(self._norm_parts)
        for number, block in enumerate(blocks):
            grads[block.norm1.weight], grads[block.norm1.bias], bias = norms[number]
            if number:
                grads[blocks[number - 1].mlp.fc2.bias] = bias
        if not forward.kept:
            return
        hidden_biases = forward.kernels.sum_parts(self._gelu_parts)
        projected_biases = forward.kernels.sum_parts(self._token_parts).flatten(1)
        outer = weight_grad(self._outer, forward.active)
        hidden = weight_grad(forward.hidden, forward.again)
        middle = weight_grad(self._middle, forward.mixed)
        projected = weight_grad(self._projected, forward.normed)
        for number, block in enumerate(blocks[:-1]):
            norm = block.norm2
            grads[norm.weight], grads[norm.bias], grads[block.attn.proj.bias] = norms[len(blocks) + number]
            grads[block.mlp.fc1.bias], grads[block.attn.qkv.bias] = hidden_biases[number], projected_biases[number]
            grads[block.mlp.fc2.weight], grads[block.mlp.fc1.weight] = outer[number], hidden[number]
            grads[block.attn.proj.weight], grads[block.attn.qkv.weight] = middle[number], projected[number]
