"""The backward pass of a vision transformer; ``vit`` explains how it differs from autograd's.

Legend: B images, T tokens, N = B T rows, W width, F the blocks that train, without the last.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from messi.models.fused.precision import weight_grad
from messi.models.fused.vit_forward import Forward
from messi.models.fused.vit_weights import BlockWeights, Embedding


class Backward:
    """The backward pass.

    The gradient of the residual sum is kept in the precision of the matrix products, next to what rounding takes from
    it: only one such rest is needed at a time, in place of the last one.
    """

    def __init__(self, forward: Forward) -> None:
        self._forward, self._grads = forward, dict[Tensor, Tensor]()
        self.start: Tensor | None = None
        """Gradient of the sum before the blocks, [N, W] float32; None if frozen blocks come first."""
        kept, (batch, tokens, width) = forward.kept, forward.shape
        self._middle, self._outer = forward.stack(width), forward.stack(width)
        """Gradients of the sums before the MLP and after the block."""
        self._projected = forward.stack(3 * width)
        hidden = forward.hidden.shape[2]
        self._norm_parts = self._parts(2 * kept + 1, forward.kernels.norm_parts(batch * tokens, width), 3, width)
        """Gradients of the first norm of every block, then of the second norm of every block but the last."""
        parts = forward.gelu.gelu_parts(batch * tokens, hidden) if kept else 0  # the only block may have no MLP
        self._gelu_parts = self._parts(kept, parts, hidden)
        heads = forward.weights.blocks[0].heads
        self._token_parts = self._parts(kept, forward.attention.token_parts(batch, tokens), 3, heads, width // heads)

    def _parts(self, *shape: int) -> Tensor:
        return torch.empty(shape, device=self._forward.device)

    def run(self, *above: Tensor) -> dict[Tensor, Tensor]:
        """Return the gradients of all weights, given those of what the forward pass returned.

        Those of frozen blocks at the beginning, and of the embedding before them, are not computed.
        """
        forward, weights = self._forward, self._forward.weights
        first = torch.empty_like(self._outer[0])
        last = self._last_block if weights.blocks[-1].mlp else self._from_mlp
        last(above, self._outer[-1] if forward.kept else first)
        for number in reversed(range(forward.kept)):
            self._block(number, self._outer[number - 1] if number else first)
        self._parameters()
        if not forward.first:
            self.start = first.float() + self._rest
            if weights.embedding:
                self._embedding(weights.embedding, self.start)
        return self._grads

    def _embedding(self, weights: Embedding, total: Tensor) -> None:
        """Compute the gradients of the embedding, given that of the sum before the blocks [N, W]."""
        patches, *normed = self._forward.embedded
        if weights.norm:
            norm, shape = weights.norm, [total.shape[1]]
            total, self._grads[norm.weight], self._grads[norm.bias] = torch.ops.aten.native_layer_norm_backward(
                total, normed[0], shape, *normed[1:], norm.weight, norm.bias, [True] * 3
            )
        self._grads[weights.patches] = weight_grad(total.to(patches.dtype), patches)
        self._grads[weights.table] = total.view(self._forward.shape).sum(0)

    def _block(self, number: int, into: Tensor) -> None:
        """Compute the gradients of one of the F blocks, and write that of the sum before it ``into`` a tensor."""
        forward = self._forward
        block = forward.weights.blocks[forward.first + number]
        low, kernels, outer, middle = forward.low, forward.kernels, self._outer[number], self._middle[number]
        first, second = forward.sums.pop()
        hidden, (fc1, fc2) = forward.hidden[number], block.mlp
        grad, parts = outer @ low[fc2.weight], self._gelu_parts[number]
        forward.gelu.gelu_backward(grad, hidden, parts, quick=forward.weights.quick)
        parts = self._norm_parts[forward.kept + 1 + number]
        grad = hidden @ low[fc1.weight]
        kernels.add_norm_backward(outer, self._rest, grad, *second, block.norm2.weight, middle, parts)
        attended = forward.projected.pop(), forward.mixed[number], forward.log_sums.pop()
        grad = self._attention(block, middle, attended, self._projected[number], self._token_parts[number])
        kernels.add_norm_backward(middle, self._rest, grad, *first, block.norm1.weight, into, self._norm_parts[number])

    def _attention(
        self,
        block: BlockWeights,
        grad: Tensor,
        attended: tuple[Tensor, Tensor, Tensor],
        projected_grad: Tensor,
        token_parts: Tensor,
    ) -> Tensor:
        """Return the gradient of the first norm of a block, given that of the sum after the attention."""
        forward, (batch, tokens, _), (projected, mixed, log_sums) = self._forward, self._forward.shape, attended
        shape = (batch, tokens, 3, block.heads, -1)
        query, key, value = projected.view(shape).unbind(2)
        forward.attention.attend_backward(
            grad @ forward.low[block.mix.weight],
            query,
            key,
            value,
            mixed,
            log_sums,
            projected_grad.view(shape).unbind(2),
            token_parts,
        )
        return projected_grad @ forward.low[block.qkv.weight]

    def _from_mlp(self, above: Sequence[Tensor], into: Tensor) -> None:
        """Compute the gradients of the last block, given those of the sum before its MLP and of the norm."""
        forward, grads, block = self._forward, self._grads, self._forward.weights.blocks[-1]
        kernels, (batch, tokens, width) = forward.kernels, forward.shape
        first, normed, projected, mixed, log_sums, second = forward.last
        parts, middle = self._parts(1, kernels.norm_parts(batch * tokens, width), 3, width), torch.empty_like(normed)
        total_grad, normed_grad = (grad.contiguous() for grad in above)
        self._rest = torch.zeros_like(normed)
        kernels.add_norm_backward(total_grad, self._rest, normed_grad, *second, block.norm2.weight, middle, parts[0])
        norm = block.norm2
        grads[norm.weight], grads[norm.bias], grads[block.mix.bias] = kernels.sum_parts(parts)[0]
        grads[block.mix.weight] = weight_grad(middle, mixed)
        parts, projected_grad = self._parts(1, *self._token_parts.shape[1:]), torch.empty_like(projected)
        grad = self._attention(block, middle, (projected, mixed, log_sums), projected_grad, parts[0])
        grads[block.qkv.bias] = kernels.sum_parts(parts).flatten()
        grads[block.qkv.weight] = weight_grad(projected_grad, normed)
        kernels.add_norm_backward(
            middle, self._rest, grad, *first, block.norm1.weight, into, self._norm_parts[forward.kept]
        )

    def _last_block(self, above: Sequence[Tensor], into: Tensor) -> None:
        """Compute the gradients of the last block, in which only the class tokens have queries."""
        (grad,) = above
        forward, grads, block = self._forward, self._grads, self._forward.weights.blocks[-1]
        low, kernels, (batch, tokens, width), (fc1, fc2) = forward.low, forward.kernels, forward.shape, block.mlp
        first, normed, query, rest, mixed, log_sums, second, again, hidden, active = forward.last
        grads[fc2.bias] = grad.sum(0)
        grad, rest_grad = self._halves(grad)
        grads[fc2.weight] = weight_grad(grad, active)
        parts = self._parts(1, forward.gelu.gelu_parts(*hidden.shape), hidden.shape[1])
        forward.gelu.gelu_backward(grad @ low[fc2.weight], hidden, parts[0], quick=forward.weights.quick)
        grads[fc1.bias], grads[fc1.weight] = kernels.sum_parts(parts)[0], weight_grad(hidden, again)
        parts, middle = self._parts(1, kernels.norm_parts(batch, width), 3, width), torch.empty_like(grad)
        hidden_grad = hidden @ low[fc1.weight]
        kernels.add_norm_backward(grad, rest_grad, hidden_grad, *second, block.norm2.weight, middle, parts[0])
        norm = block.norm2
        grads[norm.weight], grads[norm.bias], grads[block.mix.bias] = kernels.sum_parts(parts)[0]
        grads[block.mix.weight] = weight_grad(middle, mixed.view(batch, width))
        asked, others = torch.empty_like(query), torch.empty_like(rest)
        parts = self._parts(1, *self._token_parts.shape[1:])
        forward.attention.attend_backward(
            middle @ low[block.mix.weight],
            query,
            *rest.unbind(2),
            mixed,
            log_sums,
            (asked, *others.unbind(2)),
            parts[0],
        )
        asked, others = asked.view(batch, width), others.view(batch * tokens, 2 * width)
        weight, asking = low[block.qkv.weight], normed.view(forward.shape)[:, 0]
        grads[block.qkv.bias] = kernels.sum_parts(parts).flatten()
        grads[block.qkv.weight] = torch.cat([weight_grad(asked, asking), weight_grad(others, normed)])
        grad = others @ weight[width:]
        grad.view(forward.shape)[:, 0] += asked @ weight[:width]
        # The sum of the other tokens is not used any further, so its gradient is zero.
        middle, self._rest = (
            functional.pad(half.view(batch, 1, width), (0, 0, 0, tokens - 1)).view(-1, width)
            for half in (middle, rest_grad)
        )
        kernels.add_norm_backward(
            middle, self._rest, grad, *first, block.norm1.weight, into, self._norm_parts[forward.kept]
        )

    def _halves(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Return a gradient in the precision of the products, and what rounding took from it."""
        rounded = grad.to(self._forward.dtype)
        return rounded, (grad - rounded).to(rounded.dtype)

    def _parameters(self) -> None:
        """Store the parameter gradients of the F blocks, and of the first norm of the last."""
        forward, grads = self._forward, self._grads
        blocks = forward.weights.blocks[forward.first :]
        norms = forward.kernels.sum_parts(self._norm_parts)
        for number, block in enumerate(blocks):
            grads[block.norm1.weight], grads[block.norm1.bias], bias = norms[number]
            if number:
                grads[blocks[number - 1].mlp[1].bias] = bias
        if not forward.kept:
            return
        hidden_biases = forward.kernels.sum_parts(self._gelu_parts)
        projected_biases = forward.kernels.sum_parts(self._token_parts).flatten(1)
        outer = weight_grad(self._outer, forward.active)
        hidden = weight_grad(forward.hidden, forward.again)
        middle = weight_grad(self._middle, forward.mixed)
        projected = weight_grad(self._projected, forward.normed)
        for number, block in enumerate(blocks[:-1]):
            norm, (fc1, fc2) = block.norm2, block.mlp
            grads[norm.weight], grads[norm.bias], grads[block.mix.bias] = norms[len(blocks) + number]
            grads[fc1.bias], grads[block.qkv.bias] = hidden_biases[number], projected_biases[number]
            grads[fc2.weight], grads[fc1.weight] = outer[number], hidden[number]
            grads[block.mix.weight], grads[block.qkv.weight] = middle[number], projected[number]
