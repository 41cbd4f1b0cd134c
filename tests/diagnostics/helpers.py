"""Small data, loaders and methods."""

import torch

from messi.algorithms.common.base import ALGORITHMS, Algorithm, build
from messi.core.batch import InputSpec, Task
from messi.data.examples import Examples, digest
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.sealed_data import SealedData
from messi.data.splits import Split
from messi.models.encoder import EncoderConfig

CLASSES, DOMAINS = ("cat", "dog", "emu"), ("photo", "sketch", "paint")
PER_DOMAIN = 20
SIZE = 48


def examples(*, per_domain: int = PER_DOMAIN) -> Examples:
    """Return images of noise; photo has no emu, and paint is the last third."""
    generator = torch.Generator().manual_seed(0)
    number = 3 * per_domain
    domains = torch.arange(3).repeat_interleave(per_domain)
    labels = torch.randint(3, (number,), generator=generator) % torch.where(domains == 0, 2, 3)
    pixels = torch.randint(256, (number, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    return Examples(
        inputs=Images.pack(pixels),
        labels=labels,
        domains=domains,
        classes=CLASSES,
        domain_names=DOMAINS,
        fingerprint=digest(pixels, labels, domains),
    )


def loader_of(data: Examples, *, sources: tuple[int, ...] = (0, 1), opened: bool = True) -> Loader:
    """Return a loader that validates on all of the sources; paint is the target."""
    members = [(data.domains == d).nonzero().squeeze(1) for d in range(3)]
    sealed = SealedData(data, Split(train={}, source_val={d: members[d] for d in sources}, target={2: members[2]}))
    if opened:
        sealed.open_target()
    spec = InputSpec(shape=(3, SIZE, SIZE), mean=(0.5,) * 3, std=(0.3,) * 3)
    return Loader(data=sealed, spec=spec, device=torch.device("cpu"))


def make(name: str) -> Algorithm:
    """Return a method for the images with random weights, block-MoE methods with experts that differ."""
    torch.manual_seed(0)
    backbone = "test_vit" if name in {"gmoe", "omoe", "dynmoe"} else "tiny_cnn"
    task = Task(input_shape=(3, SIZE, SIZE), num_classes=3, num_domains=2)
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    algorithm = build(ALGORITHMS.config(name)(), task=task, encoder=encoder)
    for parameter in algorithm.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    return algorithm.eval()
