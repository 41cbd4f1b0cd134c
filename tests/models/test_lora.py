"""Low-rank changes: no change at the start, exact merging, and peft as a third opinion."""

import copy
from typing import Any

import peft
import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from messi.core.errors import MessiError
from messi.models.encoder import EncoderConfig, merge_encoders, untrained_names
from messi.models.fused.vit import FusedVisionTransformer
from messi.models.lora import SCALE, LowRank, adapt, merge, plain_state
from messi.models.tuning import parse_tuning

RANK = 3


def network(backbone: str = "test_vit") -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = timm.create_model(backbone, num_classes=0)
    return made.eval()


def images(number: int = 2, size: int = 160) -> Tensor:
    return torch.randn(number, 3, size, size, generator=torch.Generator().manual_seed(1))


def changes(module: nn.Module) -> list[LowRank]:
    return [part for part in module.modules() if isinstance(part, LowRank)]


def disturb(module: nn.Module) -> None:
    """Give every change random factors, as after training."""
    generator = torch.Generator().manual_seed(2)
    for change in changes(module):
        nn.init.normal_(change.up, std=0.1, generator=generator)


def test_at_the_start_every_bit_of_the_output_is_that_of_the_base() -> None:
    base = network()
    adapted = copy.deepcopy(base)
    adapt(adapted, RANK)
    assert torch.equal(adapted(images()), base(images()))
    assert len(changes(adapted)) == 4 * 6, "qkv, proj, fc1 and fc2 of every block"


def test_merged_weights_give_every_bit_of_the_output() -> None:
    adapted = network()
    names = set(adapted.state_dict())
    adapt(adapted, RANK)
    disturb(adapted)
    expected, state = adapted(images()), plain_state(adapted)
    merge(adapted)
    assert torch.equal(adapted(images()), expected)
    assert set(adapted.state_dict()) == set(state) == names
    assert all(torch.equal(state[name], value) for name, value in adapted.state_dict().items())


def test_peft_computes_the_same_outputs_and_gradients() -> None:
    ours, base = network(), network()
    adapt(ours, RANK)
    disturb(ours)
    config = peft.LoraConfig(
        r=RANK, lora_alpha=int(SCALE * RANK), target_modules=["qkv", "attn.proj", "fc1", "fc2"], lora_dropout=0.0
    )
    theirs = peft.get_peft_model(base, config)
    layers = {name: module for name, module in theirs.named_modules() if hasattr(module, "lora_A")}
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    for name, module in layers.items():
        layer: Any = ours.get_submodule(name.removeprefix("base_model.model."))
        change = layer.parametrizations.weight[0]
        down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
        down.data.copy_(change.down.data)
        up.data.copy_(change.up.data)
        pairs |= {f"{name}.down": (change.down, down), f"{name}.up": (change.up, up)}
    assert len(pairs) == 2 * len(changes(ours))
    outputs = [one(images()) for one in (ours, theirs)]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-4, atol=1e-5)
    for output in outputs:
        output.square().sum().backward()
    for name, (mine, other) in pairs.items():
        assert mine.grad is not None, name
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    "backbone", ["beit_base_patch16_224", "eva02_tiny_patch14_224", "swin_tiny_patch4_window7_224"]
)
def test_layers_whose_weight_is_read_directly_are_changed_as_well(backbone: str) -> None:
    """BEiT passes ``qkv.weight`` to a function: an adapter around the layer would have no effect."""
    torch.manual_seed(0)
    shallow: Any = timm.create_model(backbone, num_classes=0, **SHALLOW[backbone])
    adapt(shallow.eval(), RANK)
    shallow(images(1, shallow.pretrained_cfg["input_size"][1])).square().sum().backward()
    assert all(change.up.grad is not None and change.up.grad.abs().sum() > 0 for change in changes(shallow))


SHALLOW: dict[str, dict[str, Any]] = {
    "beit_base_patch16_224": {"depth": 1},
    "eva02_tiny_patch14_224": {"depth": 1},
    "swin_tiny_patch4_window7_224": {"depths": (1, 1)},
}


def test_only_the_changes_train_through_the_kernels_before_and_after_merging() -> None:
    torch.manual_seed(0)
    encoder = EncoderConfig(backbone="deit_tiny_patch16_224", pretrained=False).build((3, 224, 224))
    original, kind = set(encoder.state_dict()), type(encoder.network)
    assert kind is FusedVisionTransformer
    encoder.restrict(parse_tuning(f"lora:{RANK}"))
    assert type(encoder.network) is kind
    trained = {name.rpartition(".")[2] for name, p in encoder.named_parameters() if p.requires_grad}
    assert trained == {"down", "up"}
    assert len(untrained_names(nn.ModuleList([encoder]))) == len(list(encoder.parameters())) - 2 * len(changes(encoder))
    merge_encoders(nn.ModuleList([encoder]))
    assert set(encoder.state_dict()) == original
    assert type(encoder.network) is kind
    assert not any(parametrize.is_parametrized(module) for module in encoder.modules())


def test_autocast_does_not_round_the_changed_weight() -> None:
    linear: Any = nn.Linear(8, 8)
    adapt(linear, 2)
    disturb(linear)
    expected = linear.weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(linear.weight, expected)
        assert linear.weight.dtype == torch.float32


def test_networks_without_linear_layers_and_too_high_ranks_are_refused() -> None:
    with pytest.raises(MessiError, match="changes linear layers, and this backbone has none"):
        adapt(timm.create_model("resnet18", num_classes=0), 4)
    with pytest.raises(MessiError, match="higher rank than 64"):
        adapt(network(), 65)
