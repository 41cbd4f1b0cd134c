"""From raw images to the input of an encoder: crop, resize and normalise, on the device of the encoder.

On a CPU, images are processed one by one, so that an image stays in the cache. The images of a batch are divided among
threads, each of which works alone. Threads inside an operation cost more than they gain on tensors of this size: on
two cores they made it three times slower.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from messi.core.batch import InputSpec
from messi.data.images import Images
from messi.data.threads import worker_threads


def prepare(images: Images, spec: InputSpec) -> Tensor:
    """Resize whole images to the encoder's size and normalise them."""
    if images.sizes.device.type == "cpu" and (images.sizes == torch.tensor(spec.shape[1:])).all():
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (spec.mean, spec.std))
        return normalise(images.stack(), mean, std)
    boxes = torch.cat([torch.zeros_like(images.sizes), images.sizes], dim=1).int()
    unflipped = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    if boxes.device.type == "cpu":
        return resize(images, boxes, unflipped, spec)
    from messi.data import augment_kernels  # noqa: PLC0415 (requires Triton, which only CUDA builds of torch include)

    return augment_kernels.resize(images, boxes, unflipped, spec)


def resize(
    images: Images,
    boxes: Tensor,
    flip: Tensor,
    spec: InputSpec,
    change: Callable[[int, Tensor], Tensor] = lambda _, image: image,
) -> Tensor:
    """Return the box of each image at the size of ``spec``, normalised.

    Args:
        images: B images.
        boxes: [B, 4] top, left, height, width in pixels.
        flip: [B] True where the result is mirrored left to right.
        spec: size, mean and standard deviation.
        change: applied between resizing and normalising: takes the image's number and its whole values from 0 to 255,
            [channels, *size].

    Returns:
        [B, channels, *size]

    """
    from torchvision.transforms.v2 import functional  # noqa: PLC0415 (takes as long to import as torch)

    results = torch.empty(len(images), *spec.shape)
    size = list(spec.shape[1:])
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (spec.mean, spec.std))
    corners, mirrored = boxes.tolist(), flip.tolist()

    def process(indices: range) -> None:
        for index in indices:
            resized = functional.resized_crop(images[index], *corners[index], size, antialias=True)
            changed = change(index, (resized.flip(-1) if mirrored[index] else resized).float())
            results[index] = normalise(changed, mean, std)

    _divide(process, len(images))
    return results


def normalise(values: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Normalise images [..., channels, height, width] with values from 0 to 255."""
    return (values / 255).sub_(mean).div_(std)


def _divide(work: Callable[[range], None], number: int) -> None:
    """Do the work for the numbers below ``number`` in as many threads as torch may use."""
    workers = min(torch.get_num_threads(), number)
    if workers == 1:
        work(range(number))
        return
    borders = [number * worker // workers for worker in range(workers + 1)]
    parts = [range(first, last) for first, last in pairwise(borders)]
    list(_threads().map(work, parts))


@cache
def _threads() -> ThreadPoolExecutor:
    return worker_threads(os.cpu_count() or 1)
