"""Images of any sizes packed into one flat tensor, which is in a file, in memory or on a GPU."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from messi.core.checksum import checksum
from messi.core.errors import MessiError


class PixelChecksums:
    """Checksums of the pixels in a file; an image is checked when it is first read, before it is used.

    Checking everything at the start would read the whole store, perhaps a hundred gigabytes, before the first step.
    The bytes of an image that is being read are in the cache: checking them costs 1 % of cropping the image, once per
    run.
    """

    def __init__(self, folder: Path, expected: Mapping[int, tuple[str, str]]) -> None:
        """Take the file name and the checksum of each image, by the offset of its pixels."""
        self._folder, self._unchecked = folder, dict(expected)

    def check(self, offset: int, pixels: Tensor) -> None:
        """Raise if the pixels at an offset are damaged; each image is checked once."""
        expected = self._unchecked.get(offset)
        if expected is None:
            return
        file, wanted = expected
        if checksum([pixels.numpy().data]) != wanted:
            raise MessiError(
                f"The decoded pixels of {file} in {self._folder} are damaged; delete that folder to have the images "
                "decoded again."
            )
        self._unchecked.pop(offset, None)


@dataclass(frozen=True)
class Images(Sequence[Tensor]):
    """N uint8 images: row by row, the channels of a pixel together, one image after the other."""

    pixels: Tensor
    """[bytes]"""
    offsets: Tensor
    """[N] where each image begins."""
    sizes: Tensor
    """[N, 2] height and width."""
    channels: int
    checksums: PixelChecksums | None = None
    """For images that are read from a file."""

    @classmethod
    def pack(cls, images: Sequence[Tensor] | Tensor) -> "Images":
        """Pack images [channels, height, width] one after the other."""
        if isinstance(images, Tensor):
            number, channels, height, width = images.shape
            offsets = torch.arange(number) * (channels * height * width)
            pixels = images.permute(0, 2, 3, 1).flatten()
            return cls(pixels, offsets, torch.tensor([height, width]).repeat(number, 1), channels)
        sizes = torch.tensor([image.shape[1:] for image in images])
        pixels = torch.cat([image.permute(1, 2, 0).flatten() for image in images])
        channels = len(images[0])
        return cls(pixels, _starts(sizes.prod(1) * channels), sizes, channels)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]  # one image, never a slice
        """Return one image [channels, height, width]: a view."""
        start, (height, width) = int(self.offsets[index]), self.sizes[index].tolist()
        flat = self.pixels[start : start + height * width * self.channels]
        if self.checksums:
            self.checksums.check(start, flat)
        return flat.view(height, width, self.channels).permute(2, 0, 1)

    def select(self, indices: Tensor | slice) -> "Images":
        """Return some of the images without reading a pixel."""
        return replace(self, offsets=self.offsets[indices], sizes=self.sizes[indices])

    def check(self) -> None:
        """Compare all images that were not checked yet with their checksums; raise if one is damaged."""
        if self.checksums is None:
            return
        lengths = self.sizes.prod(1) * self.channels
        for start, length in zip(self.offsets.tolist(), lengths.tolist(), strict=True):
            self.checksums.check(start, self.pixels[start : start + length])

    def stack(self) -> Tensor:
        """Return images of one size as one tensor [N, channels, height, width]."""
        self.check()
        height, width = self.sizes[0].tolist()
        length = height * width * self.channels
        if (self.offsets % length).any():
            return torch.stack(list(self))
        grid = self.pixels[: len(self.pixels) // length * length].view(-1, height, width, self.channels)
        return grid[self.offsets // length].permute(0, 3, 1, 2).contiguous()

    def gather(self, *, device: torch.device | None = None, pinned: bool = False) -> "Images":
        """Return a copy that holds only the pixels of these images, on a device or in pinned memory."""
        self.check()
        lengths = self.sizes.prod(1) * self.channels
        starts = _starts(lengths)
        pixels = torch.empty(int(lengths.sum()), dtype=torch.uint8, device=device, pin_memory=pinned)
        for source, start, length in zip(self.offsets.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            pixels[start : start + length].copy_(self.pixels[source : source + length], non_blocking=True)
        return replace(self, pixels=pixels, offsets=starts, checksums=None)

    def to(self, device: torch.device) -> "Images":
        """Return the images with pixels, offsets and sizes on a device."""
        pixels, offsets, sizes = (t.to(device, non_blocking=True) for t in (self.pixels, self.offsets, self.sizes))
        return Images(pixels, offsets, sizes, self.channels)


def _starts(lengths: Tensor) -> Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths.tolist())][:-1])
