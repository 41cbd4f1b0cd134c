import functools
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from messi.core.errors import MessiError
from messi.models.encoder import SMALL, EncoderConfig


@pytest.mark.parametrize(
    ("backbone", "shape", "width"),
    [
        ("small_cnn", (2, 28, 28), 128),
        ("tiny_cnn", (3, 28, 28), 64),
        ("mlp", (7,), 32),
        ("residual_mlp", (7,), 64),
        ("residual_mlp", (2, 3, 4), 64),
        ("identity", (7,), 7),
        ("test_vit", (2, 160, 160), 64),
        ("test_resnet", (3, 160, 160), 96),
        ("mobilenetv3_small_050", (3, 224, 224), 1024),
    ],
)
def test_every_kind_of_encoder_gives_one_vector_of_its_width(backbone: str, shape: tuple[int, ...], width: int) -> None:
    encoder = EncoderConfig(backbone=backbone, pretrained=False).build(shape).eval()
    assert encoder.width == width
    assert encoder(torch.randn(2, *shape)).shape == (2, width)


def test_the_network_for_features_starts_as_a_linear_map_and_learns_to_bend() -> None:
    encoder = EncoderConfig(backbone="residual_mlp").build((5,)).eval()
    assert encoder.starts_linear
    left, right, zero = torch.randn(4, 5), 3 * torch.randn(4, 5), torch.zeros(1, 5)
    torch.testing.assert_close(encoder(left + right), encoder(left) + encoder(right) - encoder(zero))
    encoder(left).square().sum().backward()
    hidden = {name: parameter.grad for name, parameter in encoder.network.named_parameters()}
    assert hidden["out.weight"] is not None
    assert hidden["out.weight"].abs().sum() > 0
    with torch.no_grad():
        encoder.network.get_parameter("out.weight").normal_()
    assert not torch.allclose(encoder(left + right), encoder(left) + encoder(right) - encoder(zero), atol=0.1)


@pytest.mark.parametrize(("features", "dropped"), [(4, 1 / 66), (128, 1 / 4), (1152, 0.45)])
def test_the_more_inputs_there_are_the_more_are_dropped_in_training(features: int, dropped: float) -> None:
    encoder = EncoderConfig(backbone="residual_mlp").build((features,))
    with torch.no_grad():  # the output is the first input
        for parameter in encoder.network.get_submodule("linear").parameters():
            parameter.zero_()
        encoder.network.get_parameter("linear.weight")[:, 0] = 1
    torch.manual_seed(0)
    ones = torch.ones(4000, features)
    found = encoder(ones)[:, 0].detach()
    assert float((found == 0).float().mean()) == pytest.approx(dropped, abs=0.03)
    assert float(found.max()) == pytest.approx(1 / (1 - dropped))
    assert encoder.eval()(ones)[:, 0].eq(1).all()


def test_only_the_network_for_features_starts_linear() -> None:
    others = {name: EncoderConfig(backbone=name).build((3, 28, 28)) for name in SMALL}
    assert {name for name, encoder in others.items() if encoder.starts_linear} == {"residual_mlp"}
    assert {name: EncoderConfig(backbone=name).kind for name in ("residual_mlp", "mlp", "resnet50")} == {
        "residual_mlp": "features",
        "mlp": "small",
        "resnet50": "large",
    }


def test_the_small_cnn_matches_domainbed() -> None:
    """conv 3x3, ReLU, GroupNorm(8) four times with 64, 128, 128, 128 channels, the second with stride 2."""
    encoder = EncoderConfig(backbone="small_cnn").build((2, 28, 28))
    convolutions = [layer for layer in encoder.modules() if isinstance(layer, nn.Conv2d)]
    assert [(c.out_channels, c.stride[0], c.padding[0]) for c in convolutions] == [
        (64, 1, 1),
        (128, 2, 1),
        (128, 1, 1),
        (128, 1, 1),
    ]
    assert sum(p.numel() for p in encoder.parameters()) == 371_136


def test_a_vision_transformer_gives_its_class_token() -> None:
    encoder = EncoderConfig(backbone="test_vit", pretrained=False).build((3, 160, 160)).eval()
    images = torch.randn(2, 3, 160, 160)
    network: Any = encoder.network
    torch.testing.assert_close(encoder(images), network.forward_features(images)[:, 0])


def test_images_are_prepared_for_the_backbone_and_features_are_not() -> None:
    spec = EncoderConfig(backbone="deit_tiny_patch16_224").input_spec((3, 500, 400))
    assert (spec.shape, spec.mean, spec.std) == ((3, 224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert EncoderConfig(backbone="small_cnn").input_spec((2, 28, 28)).mean == (0, 0)
    assert EncoderConfig(backbone="mlp").input_spec((9,)).shape == (9,)


def test_colours_are_normalised_as_published_or_by_imagenet_on_request() -> None:
    imagenet, half = (0.485, 0.456, 0.406), (0.5, 0.5, 0.5)
    for backbone, mean in (
        ("deit_small_patch16_224", imagenet),
        ("vit_base_patch16_224", half),
        ("tiny_cnn", imagenet),
    ):
        assert EncoderConfig(backbone=backbone).input_spec((3, 50, 60)).mean == mean
        assert EncoderConfig(backbone=backbone, normalisation="imagenet").input_spec((3, 50, 60)).mean == imagenet
    assert EncoderConfig(backbone="vit_base_patch16_224").input_spec((1, 50, 60)).mean == (0.0,)


@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"model": state}, lambda s: {"state_dict": s}])
def test_the_encoder_loads_a_plain_state_dict(tmp_path: Path, wrap: Any) -> None:
    donor = timm.create_model("test_vit", num_classes=10)
    torch.save(wrap(donor.state_dict()), tmp_path / "weights.pt")
    encoder = EncoderConfig(backbone="test_vit", weights=str(tmp_path / "weights.pt")).build((3, 160, 160))
    for name, tensor in encoder.network.state_dict().items():
        assert torch.equal(tensor, donor.state_dict()[name])


class Runs:
    """An object whose unpickling would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("executed",))


def test_a_file_that_would_run_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"a": Runs()}, tmp_path / "weights.pt")
    with pytest.raises(MessiError, match="neither a safetensors file nor a plain state dict"):
        EncoderConfig(backbone="test_vit", weights=str(tmp_path / "weights.pt")).build((3, 160, 160))
    assert "executed" not in capsys.readouterr().out


def test_without_network_the_message_gives_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_arguments: Any, **_options: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(MessiError, match=r"could not be downloaded .*no route to host.*--weights.*--no-pretrained"):
        EncoderConfig(backbone="test_vit").build((3, 160, 160))


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_batch_norm_keeps_its_statistics_and_learns_its_scale(frozen: bool) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(backbone="resnet18", pretrained=False, frozen_batch_norm=frozen)
    encoder = config.build((3, 64, 64)).eval().train()
    before = encoder.network.bn1.running_mean.clone()  # type: ignore[union-attr, operator]
    features = encoder(torch.randn(4, 3, 64, 64))
    features.sum().backward()
    assert torch.equal(encoder.network.bn1.running_mean, before) == frozen  # type: ignore[arg-type, union-attr]
    assert encoder.network.bn1.weight.grad is not None  # type: ignore[union-attr]


def test_the_first_resnet_has_its_strides_in_the_first_convolutions() -> None:
    first, later = (
        EncoderConfig(backbone=name, pretrained=False).build((3, 64, 64)).network
        for name in ("resnet50_v1", "resnet50")
    )
    assert first.state_dict().keys() == later.state_dict().keys()
    blocks = [block for name, block in first.named_modules() if re.fullmatch(r"layer\d\.\d", name)]
    assert [block.conv1.stride[0] for block in blocks] == [1] * 3 + [2] + [1] * 3 + [2] + [1] * 5 + [2] + [1] * 2
    assert {block.conv2.stride for block in blocks} == {(1, 1)}
    with pytest.raises(MessiError, match="Give a file with --weights"):
        EncoderConfig(backbone="resnet50_v1").build((3, 64, 64))


@pytest.mark.parametrize(
    ("backbone", "size"), [("tiny_cnn", 64), ("small_cnn", 8), ("mlp", 40), ("test_vit", 64), ("test_resnet", 96)]
)
def test_images_may_have_another_size(backbone: str, size: int) -> None:
    config = EncoderConfig(backbone=backbone, pretrained=False, image_size=size)
    spec = config.input_spec((3, 500, 400))
    assert spec.shape == (3, size, size)
    encoder = config.build(spec.shape).eval()
    assert encoder(torch.randn(2, *spec.shape)).shape == (2, encoder.width)


def test_a_vision_transformer_of_another_image_size_starts_from_the_published_weights(tmp_path: Path) -> None:
    """Positions are interpolated and nothing else changes; at the published size, nothing at all."""
    donor = timm.create_model("test_vit", num_classes=0)
    torch.save(donor.state_dict(), tmp_path / "weights.pt")
    config = EncoderConfig(backbone="test_vit", weights=str(tmp_path / "weights.pt"), image_size=64)
    state = config.build((3, 64, 64)).network.state_dict()
    before = donor.state_dict()
    assert {name for name in before if not torch.equal(state[name], before[name])} == {"pos_embed"}
    assert state["pos_embed"].shape[1] == 4 * 4 + 1
    same = EncoderConfig(backbone="test_vit", weights=str(tmp_path / "weights.pt"), image_size=160)
    assert all(
        torch.equal(value, before[name]) for name, value in same.build((3, 160, 160)).network.state_dict().items()
    )


@pytest.mark.parametrize(
    ("backbone", "size", "sentence"),
    [
        ("test_vit", 100, r"image_size must be a multiple of 16, the patch size of 'test_vit', but is 100\."),
        ("mixer_s16_224", 64, r"The backbone 'mixer_s16_224' cannot take images of 64 x 64 pixels .* --image-size"),
        ("tiny_cnn", 4, r"image_size must be at least 8 and at most 1024, but is 4\."),
    ],
)
def test_a_size_that_a_backbone_cannot_take_is_refused(backbone: str, size: int, sentence: str) -> None:
    with pytest.raises(MessiError, match=sentence):
        EncoderConfig(backbone=backbone, pretrained=False, image_size=size).build((3, size, size))


def test_features_have_no_image_size() -> None:
    with pytest.raises(MessiError, match="image_size applies to images, but the data has features; omit --image-size"):
        EncoderConfig(backbone="mlp", image_size=32).input_spec((9,))


def test_a_config_without_an_image_size_is_read_as_before() -> None:
    config = EncoderConfig(backbone="tiny_cnn")
    written = {key: value for key, value in config.to_dict().items() if key != "image_size"}
    assert EncoderConfig.from_dict(written) == config


@pytest.mark.parametrize(
    ("backbone", "shape", "faster"),
    [("tiny_cnn", (2, 28, 28), True), ("test_resnet", (3, 64, 64), True), ("test_vit", (3, 160, 160), False)],
)
def test_convolutions_on_a_cpu_get_channels_last_and_give_the_same_function(
    backbone: str, shape: tuple[int, ...], faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    encoder, images = EncoderConfig(backbone=backbone, pretrained=False).build(shape).eval(), torch.randn(4, *shape)
    orders = []
    first = next(module for module in encoder.modules() if isinstance(module, nn.Conv2d))
    first.register_forward_pre_hook(
        lambda _, inputs: orders.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    torch.testing.assert_close(encoder(images), encoder.network(images), rtol=1e-4, atol=1e-5)
    assert orders == [faster and torch.backends.mkldnn.is_available(), False]
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = EncoderConfig(backbone=backbone, pretrained=False).build(shape).eval()
    plain.load_state_dict(encoder.state_dict())
    assert torch.equal(plain(images), plain.network(images))


@pytest.mark.parametrize(("backbone", "size", "last"), [("small_cnn", 28, False), ("test_resnet", 64, True)])
def test_in_bfloat16_on_a_cpu_narrow_norms_get_channels_first(backbone: str, size: int, last: bool) -> None:
    encoder = EncoderConfig(backbone=backbone, pretrained=False).build((3, size, size))
    norm = next(one for one in encoder.modules() if isinstance(one, nn.GroupNorm | nn.BatchNorm2d))
    orders = seen_orders([norm])
    with torch.autocast("cpu", torch.bfloat16):
        encoder(torch.randn(4, 3, size, size))
    assert orders == [last and torch.backends.mkldnn.is_available()]


@pytest.mark.parametrize(
    ("backbone", "expected"), [("small_cnn", [False, True, True, True]), ("tiny_cnn", [False, False, False])]
)
def test_in_bfloat16_on_a_cpu_the_order_changes_after_the_last_narrow_norm(backbone: str, expected: list[bool]) -> None:
    """Convolutions after it get channels last; function and gradient are those of the layers one after another."""
    torch.manual_seed(0)
    encoder, images = EncoderConfig(backbone=backbone).build((2, 28, 28)), torch.randn(8, 2, 28, 28)
    layers = [module for module in encoder.modules() if not list(module.children())]
    orders = seen_orders([layer for layer in layers if isinstance(layer, nn.Conv2d)])
    target = torch.randn(8, encoder.width)

    def gradient(features: Tensor) -> Tensor:
        encoder.zero_grad()
        ((features - target) ** 2).mean().backward()
        return torch.cat([weight.grad.flatten() for weight in encoder.parameters() if weight.grad is not None])

    exact = encoder(images)
    exact_gradient = gradient(exact)
    orders.clear()
    with torch.autocast("cpu", torch.bfloat16):
        changed = encoder(images)
    assert orders == [one and torch.backends.mkldnn.is_available() for one in expected]
    changed_gradient = gradient(changed)
    with torch.autocast("cpu", torch.bfloat16):
        plain = functools.reduce(lambda maps, layer: layer(maps), layers, images)
    plain_gradient = gradient(plain)
    for ours, theirs, truth in ((changed, plain, exact), (changed_gradient, plain_gradient, exact_gradient)):
        error, allowed = ((one.float() - truth).norm() for one in (ours, theirs))
        assert error <= 1.1 * allowed  # as accurate as before
        assert (ours - theirs).norm() <= allowed  # and equal up to rounding


def seen_orders(layers: list[nn.Module]) -> list[bool]:
    """Return a list that will state, for every call of a layer, whether its input has channels last only."""
    orders: list[bool] = []

    def note(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        maps = inputs[0]
        orders.append(maps.is_contiguous(memory_format=torch.channels_last) and not maps.is_contiguous())

    for layer in layers:
        layer.register_forward_pre_hook(note)
    return orders
