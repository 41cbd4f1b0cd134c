"""The forward pass of a vision transformer; ``vit`` explains how it differs from timm's.

Legend: B images, T tokens, N = B T rows, W width, F the blocks that train, without the last.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from messi.models.fused.precision import low_copies
from messi.models.fused.vit_weights import BlockWeights, Embedding, Weights


class Forward:
    """The forward pass, and the results that the backward pass needs.

    The inputs of the matrix products are stored in stacks, one layer for each of the F blocks. The backward pass then
    computes the weight gradients of all blocks in one product; a single one is too small to fill a GPU. Frozen blocks
    before the first one that trains share the first layer, and nothing of them is kept.
    """

    def __init__(
        self,
        weights: Weights,
        start: tuple[Tensor, Tensor | None],
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        *,
        keep: bool,
        whole: bool = True,
    ) -> None:
        """Prepare a pass through a network or a part of one, with sums of ``shape`` B, T, W.

        It starts from images, or from the sum and the term to add to it that another part returned. If not ``whole``,
        another part comes first that needs the gradient of both.
        """
        from messi.models.fused import (  # noqa: PLC0415 (only CUDA builds have Triton)
            attention_kernels,
            gelu_kernels,
            vit_kernels,
        )

        self.attention, self.gelu, self.kernels = attention_kernels, gelu_kernels, vit_kernels
        self.weights, self.low, self._keep = weights, _low(weights, dtype), keep
        self._start, self.shape, self.dtype, self.device = start, shape, dtype, start[0].device
        self.embedded: tuple[Tensor, ...] = ()
        """The patches; if there is a norm before the blocks, also its input, and means and 1 / deviations."""
        self.first = _first_trained(weights) if whole else 0
        """The block at which the backward pass ends."""
        self.kept, width = len(weights.blocks) - 1 - self.first, shape[2]
        """F."""
        self.normed, self.mixed, self.again = (self.stack(width) for _ in range(3))
        hidden = max(len(block.mlp[0].bias) if block.mlp else 0 for block in weights.blocks)
        self.hidden, self.active = (self.stack(hidden) for _ in range(2))
        self.projected: list[Tensor] = []
        self.log_sums: list[Tensor] = []
        self.sums: list[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]] = []
        self.last: tuple[Any, ...] = ()

    def stack(self, width: int) -> Tensor:
        """Return memory for a tensor [N, width] per block; all share one if there is no backward pass."""
        batch, tokens, _ = self.shape
        shape = (max(self.kept, 1) if self._keep else 1, batch * tokens, width)
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def run(self) -> tuple[Tensor, ...]:
        """Return the class tokens after the last block, [B, W] float32.

        If its MLP is another module, return the sum before that, and its norm: [N, W] float32.
        """
        x, branch = self._embed(self.weights.embedding) if self.weights.embedding else self._start
        bias = None
        *blocks, last = self.weights.blocks
        for number, block in enumerate(blocks):
            x, branch = self._block(number, block, x, branch, bias)
            bias = block.mlp[1].bias
        return (self._last_block if last.mlp else self._before_mlp)(last, x, branch, bias)

    def _embed(self, weights: Embedding) -> tuple[Tensor, Tensor | None]:
        """Return the sum before the blocks and a term that must still be added to it."""
        patches = self.kernels.patches(
            self._start[0], weights.patch_size, self.dtype, prefix=weights.prefix, length=weights.patches.shape[1]
        ).flatten(0, 1)
        projected, norm = patches @ self.low[weights.patches].mT, weights.norm
        if norm is None:
            self.embedded = (patches,)
            return weights.table, projected
        total = (projected.view(self.shape) + weights.table).flatten(0, 1)
        x, *statistics = torch.native_layer_norm(total, [self.shape[2]], norm.weight, norm.bias, norm.eps)
        self.embedded = patches, total, *statistics
        return x, None

    def _attend(
        self, block: BlockWeights, x: Tensor, branch: Tensor | None, bias: Tensor | None, into: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Compute a block up to its MLP; write the norm, the attention and the norm of their sum ``into`` tensors."""
        (normed, mixed, again), low, (batch, tokens, _) = into, self.low, self.shape
        first = self.kernels.add_norm(x, branch, bias, block.norm1, normed)
        projected = torch.addmm(low[block.qkv.bias], normed, low[block.qkv.weight].mT)
        query, key, value = projected.view(batch, tokens, 3, block.heads, -1).unbind(2)
        log_sums = self.attention.attend(query, key, value, mixed.view(query.shape))
        branch = mixed @ low[block.mix.weight].mT
        return first, projected, log_sums, self.kernels.add_norm(first[0], branch, block.mix.bias, block.norm2, again)

    def _block(
        self, number: int, block: BlockWeights, x: Tensor, branch: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute a block; return the sum before its MLP and the term that must still be added to it."""
        keep = self._keep and number >= self.first
        number = (number - self.first) * keep
        again, hidden, active = self.again[number], self.hidden[number], self.active[number]
        into = self.normed[number], self.mixed[number], again
        first, projected, log_sums, second = self._attend(block, x, branch, bias, into)
        low, (fc1, fc2) = self.low, block.mlp
        torch.addmm(low[fc1.bias], again, low[fc1.weight].mT, out=hidden)
        self.gelu.gelu(hidden, active, quick=self.weights.quick)
        if keep:
            self.projected.append(projected)
            self.log_sums.append(log_sums)
            self.sums.append((first, second))
        return second[0], active @ low[fc2.weight].mT

    def _last_block(
        self, block: BlockWeights, x: Tensor, branch: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Compute the last block for the class tokens only, which attend to the keys and values of all: [B, W]."""
        low, (batch, tokens, width), (fc1, fc2) = self.low, self.shape, block.mlp
        weight, qkv_bias, heads = low[block.qkv.weight], low[block.qkv.bias], block.heads
        normed = torch.empty(batch * tokens, width, dtype=self.dtype, device=self.device)
        first = self.kernels.add_norm(x, branch, bias, block.norm1, normed)
        asking = normed.view(self.shape)[:, 0]
        query = torch.addmm(qkv_bias[:width], asking, weight[:width].mT).view(batch, 1, heads, -1)
        rest = torch.addmm(qkv_bias[width:], normed, weight[width:].mT).view(batch, tokens, 2, heads, -1)
        mixed, again = torch.empty_like(query), torch.empty_like(asking)
        key, value = rest.unbind(2)
        log_sums = self.attention.attend(query, key, value, mixed)
        branch = mixed.view(batch, width) @ low[block.mix.weight].mT
        x = first[0].view(self.shape)[:, 0].contiguous()
        second = self.kernels.add_norm(x, branch, block.mix.bias, block.norm2, again)
        hidden = torch.addmm(low[fc1.bias], again, low[fc1.weight].mT)
        active = torch.empty_like(hidden)
        self.gelu.gelu(hidden, active, quick=self.weights.quick)
        if self._keep:
            self.last = first, normed, query, rest, mixed, log_sums, second, again, hidden, active
        return (second[0] + active @ low[fc2.weight].mT + fc2.bias,)

    def _before_mlp(
        self, block: BlockWeights, x: Tensor, branch: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Compute the last block up to its MLP, and return the sum and its norm."""
        batch, tokens, width = self.shape
        normed, mixed, again = (
            torch.empty(batch * tokens, width, dtype=dtype, device=self.device)
            for dtype in (self.dtype, self.dtype, torch.float32)
        )
        first, projected, log_sums, second = self._attend(block, x, branch, bias, (normed, mixed, again))
        if self._keep:
            self.last = first, normed, projected, mixed, log_sums, second
        return second[0].detach(), again  # detached: the pass would keep its own result alive, and the reverse


def _first_trained(weights: Weights) -> int:
    """Return the first block with a weight that trains: 0 if the embedding trains, at most the last block."""
    training = [any(tensor.requires_grad for tensor in block.tensors()) for block in weights.blocks]
    if weights.embedding and any(tensor.requires_grad for tensor in weights.embedding.tensors()):
        return 0
    return training.index(True) if any(training) else len(training) - 1


def _low(weights: Weights, dtype: torch.dtype) -> dict[Tensor, Tensor]:
    """Return low-precision copies of the weights of matrix products."""
    originals = [weights.embedding.patches] if weights.embedding else []
    for block in weights.blocks:
        originals += [*block.qkv, block.mix.weight]
        if block.mlp:
            originals += [*block.mlp[0], block.mlp[1].weight]
    return dict(zip(originals, low_copies(originals, dtype), strict=True))
