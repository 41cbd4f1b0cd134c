"""What several processes cannot divide is refused."""

import pytest
import torch

from messi.algorithms.common.base import ALGORITHMS, Algorithm, build
from messi.core.batch import Task
from messi.core.errors import MessiError
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.divisible import require_divisible
from messi.models.encoder import Encoder, EncoderConfig
from messi.models.tuning import parse_tuning

CPU = torch.device("cpu")


def made(encoder: EncoderConfig, method: str = "erm") -> tuple[Algorithm, RunConfig]:
    task = Task(input_shape=(3, 32, 32), num_classes=2, num_domains=3)
    config = RunConfig(data=TwoSubsets(), algorithm=ALGORITHMS.config(method)(), encoder=encoder)
    return build(config.algorithm, task=task, encoder=encoder), config


def test_batch_norm_is_refused_unless_its_statistics_are_frozen() -> None:
    encoder = EncoderConfig(backbone="test_resnet", pretrained=False)
    with pytest.raises(MessiError, match=r"The statistics of BatchNorm in 'test_resnet' .* add --frozen-batch-norm"):
        require_divisible(*made(encoder), CPU)
    require_divisible(*made(EncoderConfig(backbone="test_resnet", pretrained=False, frozen_batch_norm=True)), CPU)


def test_layers_that_draw_for_every_input_by_themselves_are_refused() -> None:
    algorithm, config = made(EncoderConfig(backbone="test_vit", pretrained=False, image_size=32))
    require_divisible(algorithm, config, CPU)
    (encoder,) = (module for module in algorithm.modules() if isinstance(module, Encoder))
    dropout = next(module for module in encoder.modules() if isinstance(module, torch.nn.Dropout))
    dropout.p = 0.1
    with pytest.raises(MessiError, match=r"'test_vit' draws random numbers in training \(Dropout\)"):
        require_divisible(algorithm, config, CPU)
    algorithm.restrict(parse_tuning("head"))  # nothing of the encoder trains, and it drops nothing
    require_divisible(algorithm, config, CPU)


def test_an_apple_gpu_and_kernels_that_differ_between_runs_are_refused() -> None:
    algorithm, config = made(EncoderConfig(backbone="tiny_cnn"))
    with pytest.raises(MessiError, match="on 'mps'; use --device cpu"):
        require_divisible(algorithm, config, torch.device("mps"))
    training = TrainingConfig(deterministic=False)
    with pytest.raises(MessiError, match="--no-deterministic"):
        require_divisible(algorithm, RunConfig(data=TwoSubsets(), training=training), CPU)
