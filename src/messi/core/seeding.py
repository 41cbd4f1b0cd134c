"""Random streams that are functions of their name, so that no random state has to be saved or restored."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(*parts: int | str) -> int:
    """Return a 63-bit seed that depends on every part; equal parts give equal seeds on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(*parts: int | str) -> torch.Generator:
    """Return a CPU generator for the stream named by ``parts``."""
    return torch.Generator().manual_seed(derive_seed(*parts))


@contextmanager
def deterministic() -> Iterator[None]:
    """Ask torch for deterministic kernels inside the block and restore the caller's settings and stream after it."""
    cudnn = torch.backends.cudnn
    before = (torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark)
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    stream = torch.get_rng_state()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before[0], warn_only=warn_only)
        cudnn.deterministic, cudnn.benchmark = before[1:]
        torch.set_rng_state(stream)
