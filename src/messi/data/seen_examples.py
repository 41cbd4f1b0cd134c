"""Recognise the examples that a run has seen, by their content, regardless of their present names and labels."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
import xxhash
from torch import Tensor

from messi.core.batch import Column
from messi.core.records import Role
from messi.core.tensorfile import tensor_bytes
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.splits import Split

SEEN: tuple[Role, ...] = ("train", "source_val", "unseen_val", "source_test")
"""The roles of examples that a run has seen; an example with several of them is assigned the first."""


def seen_digests(examples: Examples, split: Split) -> dict[str, Tensor]:
    """Return the distinct digests of the examples in each role except the target."""
    digests, members = example_digests(examples), {role: list(split.of(role).values()) for role in SEEN}
    return {role: digests[torch.cat(indices)].unique() for role, indices in members.items() if indices}


def recognise(examples: Examples, seen: Mapping[str, Tensor]) -> Split:
    """Assign every example that a run has seen to the role that it had there, and all others to the target."""
    digests, by_role = example_digests(examples), {}
    new = torch.ones(len(examples), dtype=torch.bool)
    for role in SEEN:
        known = new & torch.isin(digests, seen[role]) if role in seen else torch.zeros_like(new)
        by_role[role] = _by_domain(examples, known)
        new &= ~known
    return Split(target=_by_domain(examples, new), **{str(role): indices for role, indices in by_role.items()})


def example_digests(examples: Examples) -> Tensor:
    """Return a 64-bit digest of each example's input: of its file, or else of its pixels or features."""
    if examples.file_digests is not None:
        return examples.file_digests
    inputs = examples.inputs
    if isinstance(inputs, Tensor) and examples.columns:
        inputs = _comparable(inputs, examples.columns)
    content = tensor_bytes(inputs.pixels if isinstance(inputs, Images) else inputs)
    # The width is the seed, because images of different shapes may have the same bytes.
    values = [xxhash.xxh3_64_intdigest(content[start:end], width) for start, end, width in _places(inputs)]
    return torch.from_numpy(np.array(values, dtype=np.uint64).view(np.int64))


def _comparable(table: Tensor, columns: Sequence[Column]) -> Tensor:
    """Return a table as int64 [N, C] that do not depend on the order of its columns or on its other rows."""
    values = []
    for place in sorted(range(len(columns)), key=lambda place: columns[place].name):
        cells, categories = table[:, place], columns[place].categories
        if categories is None:
            values.append((cells + 0.0).view(torch.int64))  # -0.0 becomes 0.0
        else:
            names = [xxhash.xxh3_64_intdigest(name.encode()) for name in (*categories, "")]
            known = torch.from_numpy(np.array(names, dtype=np.uint64).view(np.int64))
            values.append(known[cells.nan_to_num(-1).long()])
        values[-1] = torch.where(cells.isnan(), 0, values[-1])
    return torch.stack(values, dim=1)


def _places(inputs: Images | Tensor) -> Iterator[tuple[int, int, int]]:
    """Yield the first byte, the end and the width of every input."""
    if isinstance(inputs, Tensor):
        length = inputs[0].nbytes
        return ((start, start + length, 0) for start in range(0, inputs.nbytes, length))
    starts, lengths = inputs.offsets.cpu(), (inputs.sizes.prod(1) * inputs.channels).cpu()
    return zip(starts.tolist(), (starts + lengths).tolist(), inputs.sizes[:, 1].tolist(), strict=True)


def _by_domain(examples: Examples, chosen: Tensor) -> dict[int, Tensor]:
    indices = chosen.nonzero().squeeze(1)
    domains = examples.domains[indices]
    return {domain: indices[domains == domain] for domain in domains.unique().tolist()}
