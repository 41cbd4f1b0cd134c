"""Batches for the encoder, prepared ahead of the training. A batch depends only on the seed and the step.

``docs/loader.md`` describes which thread or CUDA stream does what, and what waits for what.
"""

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from messi.core import gpu_kernels
from messi.core.batch import Batch, InputSpec
from messi.core.errors import MessiError
from messi.core.records import Role
from messi.core.seeding import generator
from messi.data.augment import NO_AUGMENTATION, AugmentationConfig, Parameters, draw_parameters, prepare_augmented
from messi.data.images import Images
from messi.data.placement import fetch, image_device, to_device
from messi.data.preprocess import prepare
from messi.data.sampling import BLOCK, Sampler
from messi.data.sealed_data import SealedData
from messi.data.threads import worker_threads


@dataclass(frozen=True)
class _Block:
    """The examples of a block of steps, [BLOCK * B] one after the other."""

    inputs: Images | Tensor
    labels: Tensor
    domains: Tensor
    parameters: Parameters | None


class Loader:
    """Yields training batches by step, and evaluation data in order."""

    def __init__(
        self,
        *,
        data: SealedData,
        spec: InputSpec,
        device: torch.device,
        seed: int = 0,
        sampler: Sampler | None = None,
        augmentation: AugmentationConfig = NO_AUGMENTATION,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """Prepare to load; ``part`` (r, n) loads the r-th of n equal parts of each batch's inputs, and all labels."""
        augmented = augmentation.augmentation == "domainbed"
        if augmented and (len(spec.shape) != 3 or spec.shape[0] != 3):
            raise MessiError("augmentation 'domainbed' requires colour images; choose --augmentation none.")
        self.data, self.spec, self.device = data, spec, device
        self._image_device = image_device(device)
        self._seed, self._sampler, self._part = seed, sampler, part
        self._augmented_training = augmented
        self._augmented_validation = augmented and augmentation.validation_augmentation
        self._thread = worker_threads(1)
        self._blocks: dict[int, Future[_Block]] = {}
        """The current block and the next one, which a thread draws in the meantime."""
        self._fetched: Iterator[Images] = iter(())
        self._next = -1
        """The step whose images ``_fetched`` yields next."""
        self._side = torch.cuda.Stream(device) if gpu_kernels.available(device) else None
        self._ahead: tuple[int, Batch] | None = None
        """A step and its batch, which the GPU may still be preparing on the side stream."""

    def batch(self, step: int) -> Batch:
        """Return the training batch of a step; on a GPU, start to prepare the next one on the side stream."""
        if self._side is None:
            return self._batch(step)
        if self._ahead is None or self._ahead[0] != step:
            self._ahead = step, self._batch_on_side_stream(step, self._side)
        batch = self._ahead[1]
        torch.cuda.current_stream(self.device).wait_stream(self._side)
        self._ahead = step + 1, self._batch_on_side_stream(step + 1, self._side)
        return batch

    def _batch_on_side_stream(self, step: int, side: torch.cuda.Stream) -> Batch:
        self._rows(step)  # copies the block's indices to the GPU before the wait below, not after it
        # This batch may reuse the memory of earlier ones, so it waits until the queued work has read them.
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            return self._batch(step)

    def _batch(self, step: int) -> Batch:
        block, rows = self._rows(step)
        own = self._own(rows)
        if isinstance(block.inputs, Tensor):
            inputs = block.inputs[own]
        elif block.parameters is None:
            inputs = self._to_device(prepare(self._images(step), self.spec))
        else:
            inputs = self._to_device(prepare_augmented(self._images(step), block.parameters[own], self.spec))
        return Batch(inputs=inputs, labels=block.labels[rows], domains=block.domains[rows], step=step)

    def evaluation(self, role: Role, domain: int, *, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and labels of a domain in a role, in order; augments source validation images if configured."""
        chunks = self.data.indices(role, domain).split(size)
        if self._augmented_validation and role == "source_val":
            inputs = self._augmented(fetch(map(self.data.images, chunks), self._image_device), domain)
        else:
            inputs = self.inputs(chunks)
        for indices, ready in zip(chunks, inputs, strict=True):
            yield ready, self._to_device(self.data.labels(indices))

    def inputs(self, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the inputs of chunks of examples, without augmentation."""
        if self.data.has_features:
            return (self._to_device(self.data.features(indices)) for indices in chunks)
        images = fetch(map(self.data.images, chunks), self._image_device)
        return (self._to_device(prepare(raw, self.spec)) for raw in images)

    def _augmented(self, images: Iterator[Images], domain: int) -> Iterator[Tensor]:
        """Augment validation images, identically at every evaluation with batches of the same size."""
        random = generator("validation", self._seed, domain)
        for raw in images:
            parameters = draw_parameters(raw.sizes.cpu(), random).map(self._to_image_device)
            yield self._to_device(prepare_augmented(raw, parameters, self.spec))

    def _to_device(self, tensor: Tensor) -> Tensor:
        return to_device(tensor, self.device)

    def _to_image_device(self, tensor: Tensor) -> Tensor:
        return to_device(tensor, self._image_device)

    def _images(self, step: int) -> Images:
        """Return the raw images of a step in memory that the device can read."""
        if step != self._next:
            self._fetched = fetch(map(self._selected, itertools.count(step)), self._image_device)
        self._next = step + 1
        return next(self._fetched)

    def _selected(self, step: int) -> Images:
        block, rows = self._rows(step)
        assert isinstance(block.inputs, Images)  # noqa: S101 (for the type checker; features never get here)
        return block.inputs.select(self._own(rows))

    def _own(self, rows: slice) -> slice:
        """Return the rows whose inputs this process loads; all of them if they cannot be divided equally."""
        number, size = self._part[1], rows.stop - rows.start
        if size % number:
            return rows
        start = rows.start + self._part[0] * (size // number)
        return slice(start, start + size // number)

    def _rows(self, step: int) -> tuple[_Block, slice]:
        number, place = divmod(step - 1, BLOCK)  # steps count from 1
        for wanted in (number, number + 1):
            if wanted not in self._blocks:
                self._blocks[wanted] = self._thread.submit(self._draw, wanted)
        self._blocks = {n: block for n, block in self._blocks.items() if number - 1 <= n <= number + 1}
        block = self._blocks[number].result()
        size = len(block.labels) // BLOCK
        return block, slice(place * size, (place + 1) * size)

    def _views(self, number: int, examples: int) -> Tensor | int:
        """Draw a view of every example of a block; the plain one if there is no other."""
        if self.data.views == 1:
            return 0
        return torch.randint(self.data.views, (examples,), generator=generator("view", self._seed, number))

    def _draw(self, number: int) -> _Block:
        if self._sampler is None:
            raise MessiError("This loader has no sampler: it only evaluates.")
        examples, domains = (drawn.flatten() for drawn in self._sampler.block(number))
        labels, domains = self._to_device(self.data.labels(examples)), self._to_device(domains)
        if self.data.has_features:
            features = self.data.features(examples, self._views(number, len(examples)))
            return _Block(self._to_device(features), labels, domains, None)
        images, parameters = self.data.images(examples), None
        if self._augmented_training:
            drawn = draw_parameters(images.sizes, generator("augment", self._seed, number))
            parameters = drawn.map(self._to_image_device)
        if images.pixels.device.type == self._image_device.type:  # otherwise the host gathers them
            offsets, sizes = self._to_image_device(images.offsets), self._to_image_device(images.sizes)
            images = replace(images, offsets=offsets, sizes=sizes)
        return _Block(images, labels, domains, parameters)
