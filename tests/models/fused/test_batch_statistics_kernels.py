"""BatchNorm in training against torch in float64; without a GPU, Triton's interpreter runs the kernels."""

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from messi.models.fused import batch_norm_kernels, batch_statistics_kernels
from messi.models.fused.batch_norm_kernels import batch_norm

from .common import DEVICE, ROUNDING, rand

NAMES = ("result", "maps", "weight", "bias", "shortcut")

every_kind = pytest.mark.parametrize(
    ("shortcut", "relu"), [(True, True), (False, True), (False, False), (True, False)],
    ids=["shortcut, relu", "relu", "neither", "shortcut"],
)  # fmt: skip


def given(*shape: int, shortcut: bool = True) -> list[Tensor]:
    """Return maps, not centred, and shortcut."""
    return [rand(*shape) + 0.3, rand(*shape, seed=3)][: 1 + shortcut]


def make(channels: int, *, momentum: float | None = 0.1) -> nn.BatchNorm2d:
    """Return a layer that has seen two batches."""
    layer = nn.BatchNorm2d(channels, momentum=momentum).to(DEVICE)
    with torch.no_grad():
        layer.weight.copy_(rand(channels, seed=1) + 0.5)
        layer.bias.copy_(rand(channels, seed=2))
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.num_batches_tracked is not None
    layer.running_mean.copy_(rand(channels, seed=4))
    layer.running_var.copy_(rand(channels, seed=5).square() + 0.1)
    layer.num_batches_tracked.fill_(2)
    return layer


def exact(maps: Tensor, layer: nn.BatchNorm2d, *, shortcut: Tensor | None, relu: bool) -> Tensor:
    total: Tensor = layer(maps)
    total = total if shortcut is None else total + shortcut
    return total.relu() if relu else total


def answers(
    way: Callable[..., Tensor], layer: nn.BatchNorm2d, inputs: Sequence[Tensor], above: Tensor, *, relu: bool
) -> list[Tensor]:
    """Return the result and the gradients of maps, weight, bias and shortcut."""
    maps, *others = [one.detach().clone(memory_format=torch.preserve_format).requires_grad_() for one in inputs]
    result = way(maps, layer, shortcut=others[0] if others else None, relu=relu)
    leaves = [maps, layer.weight, layer.bias, *others]
    return [result.detach(), *torch.autograd.grad(result, leaves, above.to(result.dtype))]


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().double() - wanted).norm() / wanted.double().norm())


def assert_exact(inputs: Sequence[Tensor], above: Tensor, *, relu: bool, momentum: float | None = 0.1) -> None:
    layer = make(inputs[0].shape[1], momentum=momentum)
    twin = copy.deepcopy(layer).double()
    found = answers(batch_norm, layer, inputs, above, relu=relu)
    wanted = answers(exact, twin, [one.double() for one in inputs], above, relu=relu)
    for name, one, other in zip(NAMES, found, wanted, strict=False):
        assert one.shape == other.shape
        assert off(one, other) <= ROUNDING, name
    for (name, one), other in zip(layer.named_buffers(), twin.buffers(), strict=True):
        assert off(one, other) <= ROUNDING, name


# Three positions; less than one tile of rows, and more than two; less than one tile of channels, exactly one, and more;
# and a full tile.
@pytest.mark.parametrize(
    "shape",
    [(1, 64, 1, 3), (2, 64, 3, 11), (1, 24, 3, 10), (3, 256, 3, 3), (2, 264, 2, 3), (2, 128, 2, 4)],
    ids=str,
)
@every_kind
def test_values_gradients_and_running_statistics(shape: tuple[int, ...], shortcut: bool, relu: bool) -> None:
    assert_exact(given(*shape, shortcut=shortcut), rand(*shape, seed=6), relu=relu)


def test_many_channels() -> None:
    assert_exact(given(2, 2048, 1, 3), rand(2, 2048, 1, 3, seed=6), relu=True)


@pytest.mark.parametrize("shortcut", [True, False])
@pytest.mark.parametrize("programs", [1, 4, 6, 14])
@pytest.mark.parametrize("places", [(4, 7), (1, 17)], ids=str)
def test_programs_share_the_rows(
    programs: int, places: tuple[int, int], shortcut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven or five by two tiles, the last one full or with two rows, and one to seven programs for each column."""
    for kernels in (batch_norm_kernels, batch_statistics_kernels):
        monkeypatch.setattr(kernels, "_PROGRAMS", programs)
    assert_exact(given(2, 260, *places, shortcut=shortcut), rand(2, 260, *places, seed=6), relu=True)


def test_more_parts_than_are_merged_at_once() -> None:
    """With eight rows in a tile and 256 parts merged at once."""
    assert_exact(given(3, 256, 26, 27), rand(3, 256, 26, 27, seed=6), relu=True)


@pytest.mark.parametrize(("shortcut", "relu"), [(True, False), (False, True)])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_maps_and_gradients_may_have_any_memory_layout(order: torch.memory_format, shortcut: bool, relu: bool) -> None:
    maps, *others = given(2, 32, 3, 5, shortcut=shortcut)
    inputs = [maps.contiguous(memory_format=order), *(other.mT.contiguous().mT for other in others)]
    for above in (rand(2, 32, 3, 5, seed=6), rand(2, 32, 5, 3, seed=6).mT, rand(2, 32, 1, 1, seed=6).expand_as(maps)):
        assert_exact(inputs, above, relu=relu)


def test_four_places_by_hand() -> None:
    """Mean 2 and variance 5, with epsilon 4 a deviation of 3, make -1, -1/3, 1/3, 1 of -1, 1, 3, 5."""
    layer = nn.BatchNorm2d(1, eps=4.0, momentum=0.25).to(DEVICE)
    nn.init.constant_(layer.weight, 6.0)
    nn.init.constant_(layer.bias, 1.0)
    maps = torch.tensor([-1.0, 1.0, 3.0, 5.0], device=DEVICE).view(1, 1, 2, 2).requires_grad_()
    shortcut = torch.tensor([9.0, -1.0, 0.0, -8.0], device=DEVICE).view(1, 1, 2, 2).requires_grad_()
    result = batch_norm(maps, layer, shortcut=shortcut, relu=True)
    assert result.flatten().tolist() == pytest.approx([4.0, 0.0, 3.0, 0.0])
    assert [float(one) for one in layer.buffers()] == pytest.approx([0.25 * 2, 0.75 + 0.25 * 20 / 3, 1])
    above = torch.tensor([6.0, 10.0, 18.0, 1000.0], device=DEVICE).view(1, 1, 2, 2)
    gradients = torch.autograd.grad(result, (maps, shortcut, layer.weight, layer.bias), above)
    # Two places pass the gradient: 6 and 18. Its mean is 6, its product with the normalised values 0: slope 6 / 3.
    wanted = [[0.0, -12.0, 24.0, -12.0], [6.0, 0.0, 18.0, 0.0], [0.0], [24.0]]
    for one, other in zip(gradients, wanted, strict=True):
        assert one.flatten().tolist() == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 1.0, None])
def test_running_statistics_of_several_batches(momentum: float | None) -> None:
    """Without momentum, they are means over all batches."""
    layer = make(24, momentum=momentum)
    twin = copy.deepcopy(layer).double()
    for seed in range(3):
        maps = rand(2, 24, 3, 3, seed=seed) * (seed + 1) + seed
        with torch.no_grad():
            assert off(batch_norm(maps, layer, shortcut=None, relu=False), twin(maps.double())) <= ROUNDING
    for one, other in zip(layer.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=ROUNDING, atol=ROUNDING)
    assert int(layer.state_dict()["num_batches_tracked"]) == 5


@pytest.mark.parametrize("programs", [1, 660])
def test_a_small_variance_far_from_zero(programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1000, float32 has steps of 6e-5, 0.6 % of the deviation; as a difference of squares, it would be lost."""
    for kernels in (batch_norm_kernels, batch_statistics_kernels):
        monkeypatch.setattr(kernels, "_PROGRAMS", programs)
    maps = 1000 + 0.01 * rand(3, 64, 11, 13)
    layer = make(64, momentum=1.0)
    twin = copy.deepcopy(layer).double()
    layer.eps = twin.eps = 1e-9
    result = batch_norm(maps, layer, shortcut=None, relu=False)
    wanted = twin(maps.double()).detach()
    for (name, one), other in zip(layer.named_buffers(), twin.buffers(), strict=True):
        assert off(one, other) < 1e-3, name
    assert off(result, wanted) < 1e-2


def test_parts_with_different_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variance is that between the parts of the programs; inside, there is almost none."""
    monkeypatch.setattr(batch_statistics_kernels, "_PROGRAMS", 5)
    tile = torch.arange(160, device=DEVICE) // 32  # of 32 rows
    maps = (tile * 10.0 + 100).view(1, 1, 16, 10) + 1e-3 * rand(1, 64, 16, 10)
    assert_exact([maps], rand(1, 64, 16, 10, seed=6), relu=False)


@pytest.mark.parametrize("value", [0.0, 0.1, -1000.1])
def test_a_constant_channel_becomes_its_bias(value: float) -> None:
    maps, layer = given(3, 64, 9, 11, shortcut=False)[0], make(64)
    maps[:, 5] = value
    result, gradient, *_ = answers(batch_norm, layer, [maps], rand(3, 64, 9, 11, seed=6), relu=False)
    assert (result[:, 5] == layer.bias[5]).all()
    assert gradient.isfinite().all()


def test_one_value_per_channel_is_refused_as_by_torch() -> None:
    maps, layer = rand(1, 8, 1, 1), make(8)
    with pytest.raises(ValueError, match="more than 1 value per channel") as theirs:
        copy.deepcopy(layer)(maps)
    with pytest.raises(ValueError, match="more than 1 value per channel") as ours:
        batch_norm(maps, layer, shortcut=None, relu=True)
    assert str(ours.value) == str(theirs.value)


def test_nan_stays_in_its_channel() -> None:
    inputs, above = given(2, 32, 3, 3), rand(2, 32, 3, 3, seed=6)
    whole = answers(batch_norm, make(32), inputs, above, relu=True)
    inputs[0][1, 5, 0, 2] = torch.nan
    layer = make(32)
    found = answers(batch_norm, layer, inputs, above, relu=True)
    assert found[0][:, 5].isnan().all()
    assert [int(one.isnan().sum()) for one in layer.buffers()] == [1, 1, 0]
    others = torch.arange(32) != 5
    assert torch.equal(found[0][:, others], whole[0][:, others])
    assert torch.equal(found[1][:, others], whole[1][:, others])


@every_kind
def test_the_same_input_gives_the_same_bits(shortcut: bool, relu: bool) -> None:
    inputs, above = given(2, 64, 7, 9, shortcut=shortcut), rand(2, 64, 7, 9, seed=6)
    layers = make(64), make(64)
    assert all(map(torch.equal, *(answers(batch_norm, layer, inputs, above, relu=relu) for layer in layers)))
    assert all(map(torch.equal, *(layer.buffers() for layer in layers)))


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_results_are_rounded_once(dtype: torch.dtype, shortcut: bool, relu: bool) -> None:
    """One rounding is half a step, and a step is ``eps`` times the power of two below; sums stay in float32.

    Triton's interpreter truncates to bfloat16 instead of rounding, which is a whole step.
    """
    steps = 1.0 if (DEVICE, dtype) == ("cpu", torch.bfloat16) else 0.5
    layer, inputs = make(64), [one.to(dtype) for one in given(2, 64, 7, 7, shortcut=shortcut)]
    twin, above = copy.deepcopy(layer).double(), rand(2, 64, 7, 7, seed=6).to(dtype)
    found = answers(batch_norm, layer, inputs, above, relu=relu)
    wanted = answers(exact, twin, [one.double() for one in inputs], above, relu=relu)
    for name, one, other in zip(NAMES, found, wanted, strict=False):
        if name in ("weight", "bias"):
            assert one.dtype == torch.float32
            assert off(one, other) < ROUNDING, name
        else:
            assert one.dtype == dtype
            assert ((one - other).abs() <= steps * torch.finfo(dtype).eps * other.abs() + 1e-5).all(), name
    for (name, one), other in zip(layer.named_buffers(), twin.buffers(), strict=True):
        assert off(one, other) < ROUNDING, name
