"""Encoders: any timm model by name, or a small network for small inputs."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from messi.core import shares
from messi.core.batch import InputSpec, Task
from messi.core.config import Added, Bounds, Config
from messi.core.errors import MessiError
from messi.models import lora
from messi.models.fused.replace import fuse
from messi.models.small import ResidualMLP, identity, mlp, residual_mlp, small_cnn, tiny_cnn
from messi.models.tuning import FULL, Tuning, TuningKind, fully_trained, last_blocks, parse_tuning

SMALL = {
    "identity": identity,
    "mlp": mlp,
    "residual_mlp": residual_mlp,
    "small_cnn": small_cnn,
    "tiny_cnn": tiny_cnn,
}
EncoderKind = Literal["large", "frozen", "low rank", "small", "features"]
"""Kinds of encoders with settings of their own: timm models, by the part that trains, small networks, and the network
for features."""
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Config):
    """The network that turns an input into one feature vector."""

    backbone: str | None = None
    """A timm model such as deit_small_patch16_224, or residual_mlp, mlp, identity, small_cnn or tiny_cnn; default: set
    by the data."""
    pretrained: bool = True
    """Start a timm model from its published weights."""
    weights: str | None = None
    """File with pretrained weights (safetensors or a plain state dict), used instead of a download."""

    normalisation: Literal["encoder", "imagenet"] = "encoder"
    """Normalise with the statistics published with the timm model (mostly ImageNet's), or always with ImageNet's."""

    image_size: Annotated[int, Bounds(minimum=8, maximum=1024)] | None = None
    """Resize images to this height and width; by default the published size of a timm model, 28 for small networks."""

    frozen_batch_norm: bool = False
    """Keep the running statistics of pretrained BatchNorm layers, as most published DomainBed results do."""
    tune: Annotated[str, Added()] = "full"
    """What to train: full (everything), head (nothing of the encoder), last:N (blocks) or lora:R (low-rank changes)."""
    views: Annotated[int, Bounds(minimum=1, maximum=100), Added()] = 1
    """Views of every training image with --tune head: the image itself, and augmented ones."""

    def __post_init__(self) -> None:
        """Check each setting, then those that depend on another."""
        super().__post_init__()
        tuning = self.tuning  # raises if it is misspelt
        if self.views > 1 and tuning.kind != "head":
            raise MessiError(
                "views above 1 applies to --tune head, which encodes images before training; omit --views."
            )

    @property
    def tuning(self) -> Tuning:
        """Which part of the encoder trains."""
        return parse_tuning(self.tune)

    @property
    def kind(self) -> EncoderKind:
        """Which settings a protocol has for this encoder."""
        if self.backbone == "residual_mlp":
            return "features"
        if self.backbone in SMALL:
            return "small"
        tuned: dict[TuningKind, EncoderKind] = {"head": "frozen", "lora": "low rank"}
        return tuned.get(self.tuning.kind, "large")

    @property
    def gains_from_bfloat16(self) -> bool:
        """Whether a CPU that has bfloat16 is faster with it: if large products take most of the time.

        Not ``tiny_cnn``: its norms have groups of 4 and 8 channels, which torch normalised several times slower in
        bfloat16 where it is emulated. Not networks for features, whose products are small.
        """
        return self.backbone not in SMALL or self.backbone == "small_cnn"

    def input_spec(self, data_shape: tuple[int, ...]) -> InputSpec:
        """Return the input format of this encoder for data whose raw inputs have ``data_shape``."""
        if len(data_shape) == 1:
            if self.image_size:
                raise MessiError("image_size applies to images, but the data has features; omit --image-size.")
            return InputSpec(shape=data_shape)
        channels = data_shape[0]
        mean, std = self._statistics() if channels == 3 else ((0.0,) * channels, (1.0,) * channels)
        return InputSpec(shape=(channels, *self._image_size()), mean=mean, std=std)

    def build(self, input_shape: tuple[int, ...]) -> "Encoder":
        """Return the encoder, with pretrained weights if the config says so."""
        if self.backbone in SMALL:
            if self.weights:
                raise MessiError(
                    f"weights requires a timm model; the backbone '{self.backbone}' has no pretrained weights.",
                    "Omit --weights or choose another --backbone.",
                )
            return Encoder(*SMALL[self.backbone](input_shape))
        self.check()
        self.check_weights()
        if len(input_shape) != 3:
            raise MessiError(f"The backbone '{self.backbone}' takes images; use 'residual_mlp' for features.")
        from messi.models import timm_models  # noqa: PLC0415 (see there)

        weights = Path(self.weights) if self.weights else None
        model = timm_models.build(
            str(self.backbone), channels=input_shape[0], pretrained=self.pretrained, weights=weights
        )
        if self.image_size:
            timm_models.resize(model, str(self.backbone), self.image_size)
        width = model.head_hidden_size  # the width of the output; num_features is the width before pooling
        return Encoder(model, width, frozen_batch_norm=self.frozen_batch_norm)

    def without_weights(self) -> "EncoderConfig":
        """Return the same architecture without pretrained weights, for loading a trained model."""
        return dataclasses.replace(self, pretrained=False, weights=None)

    def check(self) -> None:
        """Raise if the backbone does not exist."""
        if self.backbone not in SMALL:
            from messi.models import timm_models  # noqa: PLC0415 (see there)

            timm_models.check(str(self.backbone), others=SMALL)
        elif self.tuning != FULL:
            raise MessiError(
                f"tune '{self.tune}' requires a pretrained timm model, but the backbone '{self.backbone}' starts from "
                "random weights; omit --tune or choose another --backbone."
            )

    def check_weights(self) -> None:
        """Raise if the weights file does not exist; only a new model needs it."""
        if self.weights and not Path(self.weights).is_file():
            raise MessiError(
                f"There is no weights file {self.weights}; put the file there.", "Or name another one with --weights."
            )

    def _image_size(self) -> tuple[int, int]:
        self.check()
        if self.image_size:
            return (self.image_size, self.image_size)
        if self.backbone in SMALL:
            return (28, 28)
        height, width = self._published().input_size[1:]
        return (height, width)

    def _statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        if self.normalisation == "imagenet" or self.backbone in SMALL:
            return _IMAGENET_MEAN, _IMAGENET_STD
        published = self._published()
        return tuple(published.mean), tuple(published.std)

    def _published(self) -> Any:
        """Return what timm states about the published weights of the backbone."""
        from messi.models import timm_models  # noqa: PLC0415 (see there)

        return timm_models.published(str(self.backbone))


class Encoder(nn.Module):
    """A network that returns one feature vector per input, and the width of that vector."""

    def __init__(self, network: nn.Module, width: int, *, frozen_batch_norm: bool = False) -> None:
        super().__init__()
        self.network, self.width = network, width
        self.starts_linear = isinstance(network, ResidualMLP)
        """Whether the network is a linear map before training; MESSI's experts then add to its features."""
        self._frozen_batch_norm = frozen_batch_norm
        self._frozen: list[nn.Parameter] = []
        """The parameters whose training is suspended for some steps."""
        self.tuning = FULL
        """Which part of the network trains."""
        fuse(network)
        self._channels_last = _faster_channels_last(network)
        self._group_norm = any(isinstance(module, nn.GroupNorm) for module in network.modules())

    def restrict(self, tuning: Tuning) -> None:
        """Let only a part of the network train, from now on; all other layers stay in the mode of prediction.

        With "head", the encoder also accepts features [B, width], which it returns unchanged: those of a frozen
        network can be computed before the training.
        """
        if tuning.kind == "full":
            return
        trained = last_blocks(self.network, tuning.number) if tuning.kind == "last" else set()
        for parameter in self.network.parameters():
            parameter.requires_grad_(parameter.requires_grad and parameter in trained)
        if tuning.kind == "lora":
            lora.adapt(self.network, tuning.number)
        self.tuning = tuning
        self.train(self.training)

    def merge(self) -> None:
        """Make low-rank changes part of the weights, after training."""
        lora.merge(self.network)

    def freeze(self) -> None:
        """Suspend training: parameters get no gradient, and all layers stay in the mode of prediction."""
        self._frozen += [parameter for parameter in self.parameters() if parameter.requires_grad]
        for parameter in self._frozen:
            parameter.requires_grad_(False)
        self.eval()

    def unfreeze(self) -> None:
        """Continue training after :meth:`freeze`."""
        for parameter in self._frozen:
            parameter.requires_grad_()
        self._frozen = []
        self.train()

    def train(self, mode: bool = True) -> "Encoder":
        """Switch to training or prediction; frozen BatchNorm keeps its statistics but still learns scale and shift."""
        super().train(mode and not self._frozen)
        if self.training and self.tuning != FULL:
            self.network.eval()
            for module in fully_trained(self.network):
                module.train()
        if self._frozen_batch_norm:
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 (the base of all of them)
                    module.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Encode inputs [B, ...] as features [B, width]; several processes divide the inputs of a training step."""
        return shares.encode(inputs, self._encode)

    def _encode(self, inputs: Tensor) -> Tensor:
        if self.tuning.kind == "head" and inputs.dim() == 2:
            return inputs
        # In bfloat16 on a CPU, torch normalises narrow groups of channels several times slower with channels last;
        # small_cnn changes the order after them.
        slow = self._group_norm and torch.is_autocast_enabled("cpu")
        if inputs.device.type in self._channels_last and not slow and not torch.compiler.is_compiling():
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        features: Tensor = self.network(inputs)
        return features


def _faster_channels_last(network: nn.Module) -> set[str]:
    """Return the types of devices on which images are faster in the order of cuDNN and oneDNN."""
    norms = [type(module) for module in network.modules()]
    devices = {"cuda", "cpu"} if any(issubclass(norm, nn.BatchNorm2d) for norm in norms) else set()
    if any(issubclass(norm, nn.GroupNorm) for norm in norms):  # on a GPU, GroupNorm returns the other order
        devices.add("cpu")
    return devices if torch.backends.mkldnn.is_available() else devices - {"cpu"}


def restrict_encoders(module: nn.Module, tuning: Tuning) -> None:
    """Restrict all encoders of a method; those that do not train at all share one network."""
    encoders = [part for part in module.modules() if isinstance(part, Encoder)]
    for encoder in encoders:
        if tuning.kind == "head":
            encoder.network = encoders[0].network
        encoder.restrict(tuning)


def merge_encoders(module: nn.Module) -> None:
    """Make low-rank changes part of the weights of all encoders of a method, after training."""
    for part in list(module.modules()):
        if isinstance(part, Encoder) and part.tuning.kind == "lora":
            part.merge()


def untrained_names(module: nn.Module) -> set[str]:
    """Return the names of the parameters that :func:`restrict_encoders` keeps from training, in the module's state."""
    return {
        f"{path}.{name}"
        for path, encoder in module.named_modules()
        if isinstance(encoder, Encoder) and encoder.tuning != FULL
        for name, parameter in encoder.named_parameters()
        if not parameter.requires_grad
    }


def build_classifier(encoder: EncoderConfig, task: Task) -> nn.Sequential:
    """Return an encoder and a linear classifier as one module [B, ...] -> [B, classes], for methods that keep several.

    The encoder starts from pretrained weights if the config says so.
    """
    built = encoder.build(task.input_shape)
    return nn.Sequential(built, nn.Linear(built.width, task.num_classes))
