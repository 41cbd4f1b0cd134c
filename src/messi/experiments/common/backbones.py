"""The paper's backbones, and where their pretrained weights come from."""

from pathlib import Path

from messi.models import resnet_v1
from messi.models.encoder import SMALL, EncoderConfig

RESNET_50, DEIT_S, DEIT_TI = "resnet50", "deit_small_patch16_224", "deit_tiny_patch16_224"
_TITLES = {
    RESNET_50: "ResNet-50",
    resnet_v1.NAME: "ResNet-50 v1",
    DEIT_S: "DeiT-S/16",
    DEIT_TI: "DeiT-Ti/16",
}


def title(backbone: str) -> str:
    """Return what the paper calls a backbone; any other is called as timm calls it."""
    return _TITLES.get(backbone, backbone)


def of_paper(backbone: str) -> str:
    """Return the backbone whose numbers in the paper these are: both versions of ResNet-50 go by that name alone."""
    return RESNET_50 if backbone == resnet_v1.NAME else backbone


def pretrained(backbone: str, folder: str | None) -> EncoderConfig:
    """Return an encoder with pretrained weights: from a folder with a file named like the backbone, or by download.

    BatchNorm keeps the statistics that it comes with, as in the published results on DomainBed; DeiT has none.
    """
    weights = str(_weights_file(Path(folder), backbone)) if folder and backbone not in SMALL else None
    return EncoderConfig(backbone=backbone, weights=weights, frozen_batch_norm=True)


def _weights_file(folder: Path, backbone: str) -> Path:
    """Return the file; the first name where there is none, for a plan is also read where its weights are not."""
    files = [folder / f"{backbone}{ending}" for ending in (".safetensors", ".pth")]
    return next((file for file in files if file.is_file()), files[0])
