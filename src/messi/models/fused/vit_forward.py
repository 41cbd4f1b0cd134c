"""The forward pass of a vision transformer; ``vit`` explains how it differs from timm's.

Legend: B images, T tokens, N = B T rows, W width, F the blocks that train, without the last.
"""

from typing import Any

import torch
from torch import Tensor

from messi.models.fused.precision import low_copies


class Forward:
    """The forward pass, and the results that the backward pass needs.

    The inputs of the matrix products are stored in stacks, one layer for each of the F blocks. The backward pass then
    computes the weight gradients of all blocks in one product; a single one is too small to fill a GPU. Frozen blocks
    before the first one that trains share the first layer, and nothing of them is kept.
    """

    def __init__(self, network: Any, images: Tensor, dtype: torch.dtype, *, keep: bool) -> None:
        from messi.models.fused import attention_kernels, vit_kernels  # noqa: PLC0415 (only CUDA builds have Triton)

        self.attention, self.kernels = attention_kernels, vit_kernels
        self.network, self.low, self._keep = network, _low(network, dtype), keep
        self.shape = len(images), *network.pos_embed.shape[1:]
        self.patches = vit_kernels.patches(images, network.patch_embed.patch_size, dtype).flatten(0, 1)
        self.first = _first_trained(network)
        """The block at which the backward pass ends."""
        self.kept, width = len(network.blocks) - 1 - self.first, self.shape[2]
        """F."""
        self.normed, self.mixed, self.again = (self.stack(width) for _ in range(3))
        self.hidden, self.active = (self.stack(network.blocks[0].mlp.fc1.out_features) for _ in range(2))
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
        network = self.network
        branch, bias = self.patches @ self.low[network.patch_embed.proj.weight].flatten(1).mT, None
        x = _table(network)
        for number, block in enumerate(network.blocks[:-1]):
            x, branch = self._block(number, block, x, branch, bias)
            bias = block.mlp.fc2.bias
        return self._last_block(x, branch, bias)

    def _block(self, number: int, block: Any, x: Tensor, branch: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute a block; return the sum before its MLP and the term that must still be added to it."""
        keep = self._keep and number >= self.first
        number = (number - self.first) * keep
        low, (batch, tokens, _) = self.low, self.shape
        normed, mixed, again, hidden, active = (
            stack[number] for stack in (self.normed, self.mixed, self.again, self.hidden, self.active)
        )
        first = self.kernels.add_norm(x, branch, bias, block.norm1, normed)
        projected = torch.addmm(low[block.attn.qkv.bias], normed, low[block.attn.qkv.weight].mT)
        query, key, value = projected.view(batch, tokens, 3, block.attn.num_heads, -1).unbind(2)
        log_sums = self.attention.attend(query, key, value, mixed.view(query.shape))
        branch = mixed @ low[block.attn.proj.weight].mT
        second = self.kernels.add_norm(first[0], branch, block.attn.proj.bias, block.norm2, again)
        torch.addmm(low[block.mlp.fc1.bias], again, low[block.mlp.fc1.weight].mT, out=hidden)
        self.kernels.gelu(hidden, active)
        if keep:
            self.projected.append(projected)
            self.log_sums.append(log_sums)
            self.sums.append((first, second))
        return second[0], active @ low[block.mlp.fc2.weight].mT

    def _last_block(self, x: Tensor, branch: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the last block for the class tokens only, which attend to the keys and values of all: [B, W]."""
        block, low, (batch, tokens, width) = self.network.blocks[-1], self.low, self.shape
        weight, qkv_bias, heads = low[block.attn.qkv.weight], low[block.attn.qkv.bias], block.attn.num_heads
        normed = torch.empty_like(branch)
        first = self.kernels.add_norm(x, branch, bias, block.norm1, normed)
        asking = normed.view(self.shape)[:, 0]
        query = torch.addmm(qkv_bias[:width], asking, weight[:width].mT).view(batch, 1, heads, -1)
        rest = torch.addmm(qkv_bias[width:], normed, weight[width:].mT).view(batch, tokens, 2, heads, -1)
        mixed, again = torch.empty_like(query), torch.empty_like(asking)
        key, value = rest.unbind(2)
        log_sums = self.attention.attend(query, key, value, mixed)
        branch = mixed.view(batch, width) @ low[block.attn.proj.weight].mT
        x = first[0].view(self.shape)[:, 0].contiguous()
        second = self.kernels.add_norm(x, branch, block.attn.proj.bias, block.norm2, again)
        hidden = torch.addmm(low[block.mlp.fc1.bias], again, low[block.mlp.fc1.weight].mT)
        active = torch.empty_like(hidden)
        self.kernels.gelu(hidden, active)
        if self._keep:
            self.last = first, normed, query, rest, mixed, log_sums, second, again, hidden, active
        result: Tensor = second[0] + active @ low[block.mlp.fc2.weight].mT + block.mlp.fc2.bias
        return result


def _first_trained(network: Any) -> int:
    """Return the first block with a parameter that trains: 0 if the embedding trains, at most the last block."""
    training = [any(parameter.requires_grad for parameter in block.parameters()) for block in network.blocks]
    embedding = (network.cls_token, network.pos_embed, *network.patch_embed.parameters())
    if any(parameter.requires_grad for parameter in embedding):
        return 0
    return training.index(True) if any(training) else len(training) - 1


def _table(network: Any) -> Tensor:
    """Return the sum that is added to the projected patches: class token, bias and positions, [T, W]."""
    bias = network.patch_embed.proj.bias.expand(network.patch_embed.num_patches, -1)
    table: Tensor = torch.cat([network.cls_token[0], bias]) + network.pos_embed[0]
    return table


def _low(network: Any, dtype: torch.dtype) -> dict[Tensor, Tensor]:
    """Return low-precision copies of the weights of matrix products."""
    originals = [network.patch_embed.proj.weight]
    for block in network.blocks:
        originals += [block.attn.qkv.weight, block.attn.qkv.bias, block.attn.proj.weight]
        originals += [block.mlp.fc1.weight, block.mlp.fc1.bias, block.mlp.fc2.weight]
    return dict(zip(originals, low_copies(originals, dtype), strict=True))
