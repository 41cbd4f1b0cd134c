"""Random generators that are derived from their name, so no random state has to be saved or restored."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from messi.core.errors import MessiError


def derive_seed(*parts: int | str) -> int:
    """Return a 63-bit seed that depends on every part; equal parts give equal seeds on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(*parts: int | str) -> torch.Generator:
    """Return a CPU generator whose seed is derived from ``parts``."""
    return torch.Generator().manual_seed(derive_seed(*parts))


def seed_torch(device: torch.device, *parts: int | str) -> None:
    """Seed torch's own generators by ``parts``, for a step on ``device``."""
    seed = derive_seed(*parts)
    if (
        device.type == "cpu"
    ):  # torch.manual_seed would note the caller's stack for a later GPU, which takes a millisecond
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


@contextmanager
def deterministic(*, enabled: bool = True) -> Iterator[None]:
    """Allow only deterministic kernels inside the block; restore the caller's settings and random state after it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may sum in another order each time
    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    before = (cudnn.deterministic, cudnn.benchmark, cuda.cudnn_sdp_enabled())
    mode = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
    # torch's type stubs lack this setting, hence the three ignored errors.
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]  # not in its stubs
    if enabled:
        torch.use_deterministic_algorithms(mode=True)
        # In this mode torch fills every new tensor with NaN, to expose code that reads uninitialised memory.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in its stubs
        cudnn.deterministic, cudnn.benchmark = True, False
        cuda.enable_cudnn_sdp(enabled=False)  # its backward is not deterministic; flash attention's is
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    except RuntimeError as error:
        if "does not have a deterministic implementation" in str(error):
            raise MessiError(
                f"{str(error).partition(',')[0]}; choose another backbone or --no-deterministic."
            ) from error
        raise
    finally:
        torch.use_deterministic_algorithms(mode=mode[0], warn_only=mode[1])
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]  # not in its stubs
        cudnn.deterministic, cudnn.benchmark = before[:2]
        cuda.enable_cudnn_sdp(enabled=before[2])
