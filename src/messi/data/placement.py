"""Where the pixels of a run lie: on the GPU when they fit there, else in pinned memory, else in their file."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace

import torch
from torch import Tensor

from messi.data.images import Images
from messi.data.threads import single_threads

# The rest is for the network, its activations and whatever else uses the device or the machine.
_SHARE = 0.5
# Batches that are read ahead of the one in use, and by how many threads.
_AHEAD, _READERS = 3, 2
# Images that a thread compares with their checksums in one go.
_PART = 64


def place(images: Images, device: torch.device, *, gpu_room: int | None = None, host_room: int | None = None) -> Images:
    """Return the images in the fastest place that has room for them; the rooms, in bytes, are measured if not given."""
    if device.type != "cuda":
        return images
    size = images.pixels.numel()
    if gpu_room is None:
        gpu_room = int(_SHARE * torch.cuda.mem_get_info(device)[0])
    if size <= gpu_room:
        return replace(_checked(images), pixels=images.pixels.to(device), seals=None)
    if host_room is None:
        host_room = int(_SHARE * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if size <= host_room:
        return replace(_checked(images), pixels=images.pixels.pin_memory(), seals=None)
    return images


def _checked(images: Images) -> Images:
    """Compare all images with their checksums, in threads: this reads them from the disk, and moving them does not."""
    with single_threads(os.cpu_count() or 1) as threads:
        parts = [images.select(slice(start, start + _PART)) for start in range(0, len(images), _PART)]
        list(threads.map(Images.check, parts))
    return images


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; the host does not wait for a GPU to be ready for it."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    with torch.cuda.device(device):  # a thread has its own current device, and memory is pinned through that
        return tensor.pin_memory().to(device, non_blocking=True)


def brought(batches: Iterable[Images], device: torch.device) -> Iterator[Images]:
    """Yield batches of placed images so that kernels on the device can read them.

    What is read from the disk is read by threads, some batches ahead, and goes to a GPU through pinned memory.
    """
    if device.type != "cuda":
        yield from batches
        return
    for images in _gathered(batches, device):
        yield images.to(device)


def _gathered(batches: Iterable[Images], device: torch.device) -> Iterator[Images]:
    """Yield batches in the order in which they came; those on the host without the images that are not in them."""
    waiting: deque[Future[Images]] = deque()
    with single_threads(_READERS) as threads:
        for images in batches:
            if images.pixels.is_cuda:
                yield images
            elif images.pixels.is_pinned():
                yield images.gather(device=device)
            else:
                waiting.append(threads.submit(images.gather, pinned=True))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)
