"""Every method in every tuning mode: it trains what the mode names and nothing else, or refuses in one sentence."""

import pytest
import torch
from torch import Tensor

from messi.algorithms.common.base import ALGORITHMS, Algorithm, build
from messi.core.batch import Batch, Task
from messi.core.errors import MessiError
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import Encoder, EncoderConfig, untrained_names
from messi.models.lora import plain_state
from messi.models.tuning import parse_tuning

SIZE = 32
MODES = ("head", "last:2", "lora:2")
REFUSED = {
    **{
        (name, mode): "changes the encoder itself" for name in ("gmoe", "omoe", "dynmoe") for mode in ("head", "lora:2")
    },
    **{("mixstyle", mode): "changes the encoder itself" for mode in MODES},
}
MIXES_INPUTS = {"mixup": "it mixes features instead of images if the encoder is frozen"}
CASES = [(name, mode) for name in ALGORITHMS.names() for mode in MODES]


def make(name: str) -> Algorithm:
    torch.manual_seed(0)
    backbone = "resnet18" if name == "mixstyle" else "test_vit"
    encoder = EncoderConfig(backbone=backbone, pretrained=False, image_size=SIZE)
    task = Task(input_shape=(3, SIZE, SIZE), num_classes=2, num_domains=3)
    return build(ALGORITHMS.config(name)(), task=task, encoder=encoder)


def batch_of(step: int) -> Batch:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(12, 3, SIZE, SIZE, generator=generator)
    return Batch(inputs, torch.arange(12) % 2, torch.arange(3).repeat_interleave(4), step=step)


def fit(algorithm: Algorithm, steps: int = 3) -> None:
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=0.1))
    algorithm.train()
    for step in range(1, steps + 1):
        torch.manual_seed(step)
        algorithm.update(batch_of(step), stepper)


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in state.items()}


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_it_trains_what_the_mode_names_or_refuses(name: str, mode: str) -> None:
    algorithm = make(name)
    if (name, mode) in REFUSED:
        with pytest.raises(MessiError, match=REFUSED[name, mode]):
            algorithm.restrict(parse_tuning(mode))
        return
    algorithm.restrict(parse_tuning(mode))
    parameters = {key for key, _ in algorithm.named_parameters(remove_duplicate=False)}
    before, frozen = copied(algorithm.state_dict()), untrained_names(algorithm)
    assert frozen
    assert frozen < parameters
    fit(algorithm)
    changed = {key for key, value in algorithm.state_dict().items() if not torch.equal(value, before[key])}
    assert changed & frozen == set()
    assert changed >= parameters - frozen
    assert set(plain_state(algorithm)) == set(make(name).state_dict()), "a saved model has the plain weights"


@pytest.mark.parametrize("name", [n for n, mode in CASES if mode == "head" and (n, mode) not in REFUSED])
def test_features_and_images_give_the_same_steps(name: str) -> None:
    """A method that reads its inputs only through the encoder cannot tell whether they were encoded before."""
    states = []
    for encoded in (False, True):
        algorithm = make(name)
        algorithm.restrict(parse_tuning("head"))
        encoder = next(module for module in algorithm.modules() if isinstance(module, Encoder))
        stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=0.1))
        algorithm.train()
        for step in (1, 2):
            torch.manual_seed(step)
            batch = batch_of(step)
            inputs = encoder(batch.inputs) if encoded else batch.inputs
            algorithm.update(Batch(inputs, batch.labels, batch.domains, step=step), stepper)
        states.append(algorithm.state_dict())
    equal = all(torch.allclose(states[0][key], states[1][key], rtol=1e-4, atol=1e-5) for key in states[0])
    assert equal == (name not in MIXES_INPUTS)


@pytest.mark.parametrize("name", ["gmoe", "omoe", "dynmoe"])
def test_experts_must_be_in_the_blocks_that_train(name: str) -> None:
    """Of six blocks, the fifth has experts."""
    with pytest.raises(MessiError, match="freezes blocks with experts"):
        make(name).restrict(parse_tuning("last:1"))
