"""Specialisation: whether the outputs of the experts differ.

Legend: B examples of a batch, N of all, M experts, R features.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:  # recording imports this module
    from messi.diagnostics.recording import Recording


@dataclass(frozen=True)
class Specialisation:
    """How similar the outputs of the experts are."""

    cosine: Tensor
    """[M, M] mean over examples of cos(h_m(x), h_n(x))."""
    effective_rank: float
    """From 1 to M, of the matrix whose rows are the outputs of each expert for all examples."""

    @property
    def mean_off_diagonal(self) -> float:
        """The mean cosine of two different experts; NaN for a single expert."""
        experts = len(self.cosine)
        total = self.cosine.sum() - self.cosine.diagonal().sum()
        return float(total / (experts * (experts - 1)))


class SpecialisationTally:
    """Accumulates inner products of outputs batch by batch; the outputs themselves are not kept."""

    def __init__(self, num_experts: int) -> None:
        self._cosines = torch.zeros(num_experts, num_experts, dtype=torch.float64)
        self._products = torch.zeros(num_experts, num_experts, dtype=torch.float64)
        self._count = 0

    def update(self, outputs: Tensor) -> None:
        """Add the outputs of a batch [M, B, R]."""
        outputs = outputs.double()
        unit = functional.normalize(outputs, dim=-1)
        self._cosines += torch.einsum("mbr,nbr->mn", unit, unit)
        self._products += torch.einsum("mbr,nbr->mn", outputs, outputs)
        self._count += outputs.shape[1]

    def result(self) -> Specialisation:
        """Return the specialisation over the batches so far."""
        # The squares of the singular values of a matrix [M, N R] are the eigenvalues of its products [M, M].
        singular = torch.linalg.eigvalsh(self._products).clamp_min(0).sqrt()
        return Specialisation(cosine=self._cosines / self._count, effective_rank=effective_rank(singular))


def effective_rank(singular: Tensor) -> float:
    """Return exp(entropy) of singular values [S] divided by their sum (Roy and Vetterli, 2007)."""
    return float(torch.special.entr(singular / singular.sum()).sum().exp())


def part(recording: "Recording") -> dict[str, Any]:
    """Return how similar the experts are on the source domains; nothing for fewer than two experts."""
    found = recording.source.specialisation if recording.source else None
    if found is None or len(found.cosine) == 1:
        return {}
    numbers = {"mean_off_diagonal": found.mean_off_diagonal, "effective_rank": found.effective_rank}
    return {"similarity": {"cosine": found.cosine, **numbers}}
