"""An encoder with a linear classifier as one module, for methods that keep several of them."""

from torch import nn

from messi.core.batch import Task
from messi.models.encoder import EncoderConfig


def build_network(encoder: EncoderConfig, task: Task) -> nn.Sequential:
    """Return a classifier [B, ...] -> [B, classes]; its encoder starts from pretrained weights, if there are any."""
    built = encoder.build(task.input_shape)
    return nn.Sequential(built, nn.Linear(built.width, task.num_classes))
