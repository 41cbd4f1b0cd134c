"""MixStyle: in training, the channel means and deviations of an image's feature maps are mixed with another image's.

    x -> sigma_mix (x - mu) / sigma + mu_mix,   mu_mix = l mu + (1 - l) mu',   sigma_mix = l sigma + (1 - l) sigma'

with l ~ Beta(alpha, alpha) for every image and the statistics mu', sigma' of another image. All statistics are
constants for the gradient, so the operation is one scale and one shift per image and channel.

Legend: B images, C channels, H x W positions.
"""

from functools import partial

import torch
from timm.models.resnet import ResNet
from torch import Tensor, nn
from torch.distributions import Beta

from messi.core import shares
from messi.core.errors import MessiError

_EPSILON = 1e-6


def mix_styles(maps: Tensor, *, probability: float, alpha: float) -> Tensor:
    """With the given probability, mix the styles of a batch with a random permutation of itself: [B, C, H, W]."""
    device = maps.device
    mixed = torch.rand((), device=device) < probability  # drawn on the device, because a step must not wait
    partner = shares.draw(len(maps), lambda rows: torch.rand(rows, device=device).argsort())
    share = shares.draw(len(maps), lambda rows: _shares(torch.full((rows,), alpha, device=device)))
    scale, shift = restyling(maps.detach(), partner, share)
    return (maps * torch.where(mixed, scale, 1) + torch.where(mixed, shift, 0)).to(maps.dtype)


def restyling(maps: Tensor, partner: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scales and shifts [B, C, 1, 1] that mix the style of maps [B, C, H, W] with that of ``partner`` [B].

    ``share`` [B] is the fraction of its own style that an image keeps. If several processes divide the batch, a partner
    may be an image of another one.
    """
    share = share[:, None, None, None]
    places = maps.shape[2] * maps.shape[3]
    variance, mean = torch.var_mean(maps.float(), dim=(2, 3), keepdim=True, correction=min(1, places - 1))
    spread = (variance + _EPSILON).sqrt()
    others = shares.whole(torch.cat([spread, mean], 1))[partner]
    other_spread, other_mean = others.chunk(2, 1)
    scale = torch.lerp(other_spread, spread, share) / spread
    return scale, torch.lerp(other_mean, mean, share) - mean * scale


def _shares(shape: Tensor) -> Tensor:
    return Beta(shape, shape, validate_args=False).sample()


def insert(network: nn.Module, *, probability: float, alpha: float) -> None:
    """Let a convolutional network mix styles after each stage but the last, in training only.

    Hooks do this, so modules and parameter names stay the same.
    """
    for stage in _stages(network)[:-1]:
        stage.register_forward_hook(partial(_mix_output, probability=probability, alpha=alpha))


def _mix_output(
    stage: nn.Module, _inputs: tuple[Tensor, ...], maps: Tensor, probability: float, alpha: float
) -> Tensor:
    return mix_styles(maps, probability=probability, alpha=alpha) if stage.training else maps


def _stages(network: nn.Module) -> list[nn.Module]:
    """Return the modules whose outputs are the feature maps of each stage."""
    if isinstance(network, ResNet):
        return [network.get_submodule(f"layer{number}") for number in (1, 2, 3, 4)]
    stages: list[nn.Module] = [layer for layer in network.children() if isinstance(layer, nn.GroupNorm)]
    if not stages or not isinstance(network, nn.Sequential):
        raise MessiError(
            "MixStyle mixes the feature maps of a convolutional network: backbone must be a timm ResNet (such as "
            "resnet50), small_cnn or tiny_cnn."
        )
    return stages
