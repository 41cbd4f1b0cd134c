"""MixStyle on feature maps: the formula, the random draws, and its positions in a network."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from messi.core.errors import MessiError
from messi.models import mixstyle
from messi.models.encoder import EncoderConfig
from messi.models.mixstyle import insert, mix_styles, restyling


def random_maps(size: int = 5, *, places: tuple[int, int] = (4, 3)) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    styles = torch.rand(2, size, 3, 1, 1, dtype=torch.float64, generator=generator)
    return (0.5 + styles[0]) * torch.randn(size, 3, *places, dtype=torch.float64, generator=generator) + 4 * styles[1]


def literal(maps: Tensor, partner: list[int], share: list[float]) -> Tensor:
    """Return sigma_mix (x - mu) / sigma + mu_mix, image by image and channel by channel."""
    mixed = torch.empty_like(maps)
    for index, (other, own) in enumerate(zip(partner, share, strict=True)):
        for channel in range(maps.shape[1]):
            one, two = maps[index, channel], maps[other, channel]
            mean, spread = one.mean(), (one.var() + 1e-6).sqrt()
            mixed_mean = own * mean + (1 - own) * two.mean()
            mixed_spread = own * spread + (1 - own) * (two.var() + 1e-6).sqrt()
            mixed[index, channel] = mixed_spread * (one - mean) / spread + mixed_mean
    return mixed


def test_restyled_maps_match_the_formula() -> None:
    maps, partner, share = random_maps(), [3, 0, 2, 4, 1], [0.25, 1.0, 0.5, 0.0, 0.875]
    scale, shift = restyling(maps, torch.tensor(partner), torch.tensor(share))
    # The statistics are float32.
    torch.testing.assert_close(maps * scale + shift, literal(maps, partner, share), rtol=1e-5, atol=1e-5)


def test_two_images_of_one_channel_by_hand() -> None:
    # 0, 2: mean 1, spread sqrt 2; 10, 18: mean 14, spread 4 sqrt 2. Half of each: mean 7.5, spread 2.5 sqrt 2.
    maps = torch.tensor([[0.0, 2.0], [10.0, 18.0]]).view(2, 1, 1, 2)
    scale, shift = restyling(maps, torch.tensor([1, 0]), torch.tensor([0.5, 0.5]))
    assert (maps * scale + shift).flatten().tolist() == pytest.approx([5, 10, 5, 10], rel=1e-5)


def test_variance_is_unbiased_plus_a_millionth() -> None:
    # 0 and 0.002 have the unbiased variance 2e-6, a flat map has 0: spreads of sqrt 3 and 1 thousandths.
    maps = torch.tensor([[0.0, 0.002], [0.0, 0.0]]).view(2, 1, 1, 2)
    scale, _ = restyling(maps, torch.tensor([1, 0]), torch.tensor([0.0, 0.0]))
    assert scale.flatten().tolist() == pytest.approx([3**-0.5, 3**0.5], rel=1e-5)


def test_statistics_are_constants_for_the_gradient() -> None:
    """The gradient is the scale, which two positions of a map determine."""
    torch.manual_seed(0)
    maps, above = random_maps().requires_grad_(), torch.randn(5, 3, 4, 3, dtype=torch.float64)
    mixed = mix_styles(maps, probability=1.0, alpha=1.0)
    (gradient,) = torch.autograd.grad((mixed * above).sum(), maps)
    scale = (mixed[:, :, :1, :1] - mixed[:, :, 1:2, 1:2]) / (maps[:, :, :1, :1] - maps[:, :, 1:2, 1:2])
    torch.testing.assert_close(gradient, above * scale, rtol=1e-6, atol=1e-9)


def test_probability_one_always_mixes_and_zero_changes_no_bit() -> None:
    maps = random_maps().float()
    for seed in range(20):
        torch.manual_seed(seed)
        assert torch.equal(mix_styles(maps, probability=0.0, alpha=0.1), maps)
        assert not torch.equal(mix_styles(maps, probability=1.0, alpha=0.1), maps)


def test_whole_batches_are_mixed_with_the_given_probability() -> None:
    maps = random_maps().float()
    torch.manual_seed(0)
    mixed = [not torch.equal(mix_styles(maps, probability=0.3, alpha=0.1), maps) for _ in range(1000)]
    assert 0.23 < sum(mixed) / 1000 < 0.37  # five standard deviations


@pytest.mark.parametrize(("alpha", "variance"), [(0.1, 1 / 4.8), (2.0, 1 / 20)])
def test_partners_are_permuted_and_every_image_draws_its_own_weight_from_beta(alpha: float, variance: float) -> None:
    """Two flat images of 0 and 1: half of the permutations swap them, and then their values are the weights.

    Beta(a, a) has the mean 1/2 and the variance 1 / (8 a + 4).
    """
    maps = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    torch.manual_seed(0)
    mixed = torch.stack([mix_styles(maps, probability=1.0, alpha=alpha)[:, 0, 0, 0] for _ in range(2000)])
    swapped = mixed[(mixed != torch.tensor([0.0, 1.0])).any(1)]
    assert 880 < len(swapped) < 1120  # five standard deviations
    assert swapped.mean().item() == pytest.approx(0.5, abs=0.06)
    assert swapped.var().item() == pytest.approx(variance, rel=0.1)
    assert abs(torch.corrcoef(swapped.T)[0, 1].item()) < 0.15


def test_maps_of_one_position_and_flat_maps_stay_finite() -> None:
    for maps in (random_maps(places=(1, 1)).float(), torch.ones(4, 2, 3, 3)):
        leaf = maps.requires_grad_()
        mixed = mix_styles(leaf, probability=1.0, alpha=0.1)
        (gradient,) = torch.autograd.grad(mixed.sum(), leaf)
        assert mixed.isfinite().all()
        assert gradient.isfinite().all()


def test_half_precision_is_computed_in_float32_and_converted_back() -> None:
    maps, results = random_maps().bfloat16(), []
    for one in (maps, maps.float()):
        torch.manual_seed(0)
        results.append(mix_styles(one, probability=1.0, alpha=1.0))
    assert results[0].dtype == torch.bfloat16
    assert torch.equal(results[0], results[1].bfloat16())


class Seen:
    """Counts the calls of mix_styles and records the widths of the maps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shapes: list[tuple[int, ...]] = []
        monkeypatch.setattr(mixstyle, "mix_styles", self._mix)

    def _mix(self, maps: Tensor, **_settings: Any) -> Tensor:
        self.shapes.append(tuple(maps.shape[1:]))
        return maps


@pytest.mark.parametrize(
    ("backbone", "shape", "expected"),
    [
        ("small_cnn", (2, 28, 28), [(64, 28, 28), (128, 14, 14), (128, 14, 14)]),
        ("tiny_cnn", (3, 28, 28), [(32, 14, 14), (64, 7, 7)]),
        ("test_resnet", (3, 160, 160), [(32, 40, 40), (48, 20, 20), (192, 10, 10)]),
        ("resnet18", (3, 64, 64), [(64, 16, 16), (128, 8, 8), (256, 4, 4)]),
    ],
)
def test_all_stages_but_the_last_are_mixed(
    backbone: str, shape: tuple[int, ...], expected: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = EncoderConfig(backbone=backbone, pretrained=False).build(shape)
    insert(encoder.network, probability=0.5, alpha=0.1)
    seen = Seen(monkeypatch)
    encoder(torch.randn(2, *shape))
    assert seen.shapes == expected


def test_evaluation_mixes_nothing_and_the_state_is_that_of_the_plain_network() -> None:
    encoder = EncoderConfig(backbone="tiny_cnn").build((3, 28, 28))
    plain, images = copy.deepcopy(encoder), torch.randn(4, 3, 28, 28)
    insert(encoder.network, probability=1.0, alpha=0.1)
    assert list(encoder.state_dict()) == list(plain.state_dict())
    assert torch.equal(encoder.eval()(images), plain.eval()(images))
    assert not torch.equal(encoder.train()(images), plain.train()(images))


def test_a_copy_of_the_network_mixes_as_well() -> None:
    encoder = EncoderConfig(backbone="tiny_cnn").build((3, 28, 28))
    insert(encoder.network, probability=1.0, alpha=0.1)
    images, results = torch.randn(4, 3, 28, 28), []
    for one in (encoder, copy.deepcopy(encoder)):
        torch.manual_seed(0)
        results.append(one(images))
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("backbone", "shape"),
    [("mlp", (7,)), ("identity", (7,)), ("test_vit", (3, 160, 160)), ("test_efficientnet", (3, 160, 160))],
)
def test_the_error_for_other_networks_names_the_allowed_ones(backbone: str, shape: tuple[int, ...]) -> None:
    network: nn.Module = EncoderConfig(backbone=backbone, pretrained=False).build(shape).network
    with pytest.raises(MessiError, match=r"backbone must be a timm ResNet .*small_cnn or tiny_cnn"):
        insert(network, probability=0.5, alpha=0.1)
