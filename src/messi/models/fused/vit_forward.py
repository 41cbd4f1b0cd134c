"""The forward pass of a vision transformer; ``vit`` explains how it differs from timm's.

Legend: B images, T tokens, N = B T rows, W width, F the blocks that train, without the last.
"""

from typing import Any

import torch
from torch import Tensor

from messi.models.fused.precision import low_copies
from messi.models.fused.vit_weights import BlockWeights, Weights


class Forward:
    """The forward pass, and the results that the backward pass needs.

    The inputs of the matrix products are stored in stacks, one layer for each of the F blocks. The backward pass then
    computes the weight gradients of all blocks in one product; a single one is too small to fill a GPU. Frozen blocks
    before the first one that trains share the first layer, and nothing of them is kept.
    """

    def __init__(self, weights: Weights, images: Tensor, dtype: torch.dtype, *, keep: bool) -> None:
        from messi.models.fused import attention_kernels, vit_kernels  # noqa: PLC0415 (only CUDA builds have Triton)

        self.attention, self.kernels = attention_kernels, vit_kernels
        self.weights, self.low, self._keep = weights, _low(weights, dtype), keep
        self.shape = len(images), *weights.table.shape
        self.patches = vit_kernels.patches(
            images, weights.patch_size, dtype, prefix=weights.prefix, length=weights.patches.shape[1]
        ).flatten(0, 1)
        self.embedded: tuple[Tensor, ...] = ()
        """If there is a norm before the blocks: its input, and means and 1 / deviations."""
        self.first = _first_trained(weights)
        """The block at which the backward pass ends."""
        self.kept, width = len(weights.blocks) - 1 - self.first, self.shape[2]
        """F."""
        self.normed, self.mixed, self.again = (self.stack(width) for _ in range(3))
        self.hidden, self.active = (self.stack(len(weights.blocks[0].fc1.bias)) for _ in range(2))
        self.projected: list[Tensor] = []
        self.log_sums: list[Tensor] = []
        self.sums: list[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]] = []
        self.last: tuple[Any, ...] = ()

    def stack(self, width: int) -> Tensor:
        """Return memory for a tensor [N, width] per block; all share one if there is no backward pass."""
        batch, tokens, _ = self.shape
        shape = (max(self.kept, 1) if self._keep else 1, batch * tokens, width)
        return torch.empty(shape, dtype=self.patches.dtype, device=self.patches.device)

    def run(self) -> Tensor:
        """Return the class tokens after the last block, [B, W] float32."""
        x, branch, bias = *self._embed(), None
        for number, block in enumerate(self.weights.blocks[:-1]):
            x, branch = self._block(number, block, x, branch, bias)
            bias = block.fc2.bias
        return self._last_block(x, branch, bias)

    def _embed(self) -> tuple[Tensor, Tensor | None]:
        """Return the sum before the blocks and a term that must still be added to it."""
        weights = self.weights
        projected, norm = self.patches @ self.low[weights.patches].mT, weights.norm
        if norm is None:
            return weights.table, projected
        total = (projected.view(self.shape) + weights.table).flatten(0, 1)
        x, *statistics = torch.native_layer_norm(total, [self.shape[2]], norm.weight, norm.bias, norm.eps)
        self.embedded = total, *statistics
        return x, None

    def _block(
        self, number: int, block: BlockWeights, x: Tensor, branch: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute a block; return the sum before its MLP and the term that must still be added to it."""
        keep = self._keep and number >= self.first
        number = (number - self.first) * keep
        low, (batch, tokens, _) = self.low, self.shape
        normed, mixed, again, hidden, active = (
            stack[number] for stack in (self.normed, self.mixed, self.again, self.hidden, self.active)
        )
        first = self.kernels.add_norm(x, branch, bias, block.norm1, normed)
        projected = torch.addmm(low[block.qkv.bias], normed, low[block.qkv.weight].mT)
        query, key, value = projected.view(batch, tokens, 3, block.heads, -1).unbind(2)
        log_sums = self.attention.attend(query, key, value, mixed.view(query.shape))
        branch = mixed @ low[block.mix.weight].mT
        second = self.kernels.add_norm(first[0], branch, block.mix.bias, block.norm2, again)
        torch.addmm(low[block.fc1.bias], again, low[block.fc1.weight].mT, out=hidden)
        self.kernels.gelu(hidden, active, quick=self.weights.quick)
        if keep:
            self.projected.append(projected)
            self.log_sums.append(log_sums)
            self.sums.append((first, second))
        return second[0], active @ low[block.fc2.weight].mT

    def _last_block(self, x: Tensor, branch: Tensor | None, bias: Tensor | None) -> Tensor:
        """Compute the last block for the class tokens only, which attend to the keys and values of all: [B, W]."""
        block, low, (batch, tokens, width) = self.weights.blocks[-1], self.low, self.shape
        weight, qkv_bias, heads = low[block.qkv.weight], low[block.qkv.bias], block.heads
        normed = torch.empty_like(x, dtype=self.patches.dtype)
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
        hidden = torch.addmm(low[block.fc1.bias], again, low[block.fc1.weight].mT)
        active = torch.empty_like(hidden)
        self.kernels.gelu(hidden, active, quick=self.weights.quick)
        if self._keep:
            self.last = first, normed, query, rest, mixed, log_sums, second, again, hidden, active
        result: Tensor = second[0] + active @ low[block.fc2.weight].mT + block.fc2.bias
        return result


def _first_trained(weights: Weights) -> int:
    """Return the first block with a weight that trains: 0 if the embedding trains, at most the last block."""
    training = [any(tensor.requires_grad for tensor in block.tensors()) for block in weights.blocks]
    norm = () if weights.norm is None else (weights.norm.weight, weights.norm.bias)
    if any(tensor.requires_grad for tensor in (weights.patches, weights.table, *norm)):
        return 0
    return training.index(True) if any(training) else len(training) - 1


def _low(weights: Weights, dtype: torch.dtype) -> dict[Tensor, Tensor]:
    """Return low-precision copies of the weights of matrix products."""
    originals = [weights.patches]
    for block in weights.blocks:
        originals += [*block.qkv, block.mix.weight, *block.fc1, block.fc2.weight]
    return dict(zip(originals, low_copies(originals, dtype), strict=True))
