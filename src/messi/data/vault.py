"""The examples of a run behind their roles. Nothing of the target can be read before it is opened, once, at the end."""

from collections.abc import Sequence

import torch
from torch import Tensor

from messi.core.records import Role
from messi.data.examples import Examples
from messi.data.splits import Split


class TargetSealedError(RuntimeError):
    """Someone tried to read target data before the final evaluation."""


class Vault:
    """Gives out inputs and labels; raises for target examples until :meth:`open_target`."""

    def __init__(self, examples: Examples, split: Split) -> None:
        self._examples, self._split = examples, split
        self.classes, self.domain_names = examples.classes, examples.domain_names
        held_out = torch.isin(examples.domains, torch.tensor(list(split.target), dtype=torch.long))
        self._sealed = held_out.clone()

    def domains(self, role: Role) -> list[int]:
        """Return the domains that have examples in a role."""
        return list(self._split.of(role))

    def indices(self, role: Role, domain: int) -> Tensor:
        """Return the examples of a domain in a role."""
        return self._checked(self._split.of(role)[domain])

    def inputs(self, indices: Tensor) -> Sequence[Tensor] | Tensor:
        """Return the raw inputs of some examples."""
        inputs = self._examples.inputs
        checked = self._checked(indices)
        return inputs[checked] if isinstance(inputs, Tensor) else [inputs[i] for i in checked.tolist()]

    def labels(self, indices: Tensor) -> Tensor:
        """Return the labels of some examples."""
        return self._examples.labels[self._checked(indices)]

    def open_target(self) -> None:
        """Let the target be read. Training and selection must be over."""
        self._sealed.zero_()

    def _checked(self, indices: Tensor) -> Tensor:
        if self._sealed[indices].any():
            raise TargetSealedError(
                "Target data is sealed until training and selection are over; only the final evaluation reads it."
            )
        return indices
