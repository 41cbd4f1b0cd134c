"""Whether experts say different things.

Legend: B examples of a batch, N of all, M experts, R features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Specialisation:
    """How alike the outputs of the experts are."""

    cosine: Tensor
    """[M, M] the mean over examples of cos(h_m(x), h_n(x))."""
    effective_rank: float
    """Of the matrix that has the outputs of an expert for all examples as a row: from 1 to M."""

    @property
    def mean_off_diagonal(self) -> float:
        """The mean cosine of two different experts; NaN where there is one alone."""
        experts = len(self.cosine)
        total = self.cosine.sum() - self.cosine.diagonal().sum()
        return float(total / (experts * (experts - 1)))


class SpecialisationTally:
    """Adds up inner products of outputs, batch by batch; the outputs themselves are not kept."""

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
        """Return what follows from the batches so far."""
        # The squares of the singular values of a matrix [M, N R] are the eigenvalues of its products [M, M].
        singular = torch.linalg.eigvalsh(self._products).clamp_min(0).sqrt()
        return Specialisation(cosine=self._cosines / self._count, effective_rank=effective_rank(singular))


def effective_rank(singular: Tensor) -> float:
    """Return exp(entropy) of singular values [S] that are made to add up to 1 (Roy and Vetterli, 2007)."""
    return float(torch.special.entr(singular / singular.sum()).sum().exp())
