"""The examples of a run by role. Target data cannot be read until it is opened, once, after training and selection."""

import torch
from torch import Tensor

from messi.core.records import Role
from messi.data.examples import Examples, are_unbalanced
from messi.data.images import Images
from messi.data.splits import Split


class TargetSealedError(RuntimeError):
    """Target data was read before the final evaluation."""


class SealedData:
    """Returns inputs and labels; raises for target examples until :meth:`open_target`."""

    def __init__(self, examples: Examples, split: Split, encoded: Tensor | None = None) -> None:
        """Take the examples and, for images that were encoded before, their features [views, N, F]."""
        self._examples, self._split, self._encoded = examples, split, encoded
        self.classes, self.domain_names = examples.classes, examples.domain_names
        self.has_images = isinstance(examples.inputs, Images)
        self.unbalanced = are_unbalanced(examples)
        """Whether evaluations state what accuracy hides; says nothing about single target examples."""
        self.has_features = encoded is not None or not self.has_images
        """Whether the inputs of the model are features, of the data or of a frozen encoder."""
        self.views = 1 if encoded is None else len(encoded)
        """The number of views of each example; the first is the plain one."""
        self._sealed = torch.isin(examples.domains, torch.tensor(list(split.target), dtype=torch.long))
        for indices in split.source_test.values():
            self._sealed[indices] = True
        for indices in split.unseen_val.values():  # an unseen domain may also have validation data
            self._sealed[indices] = False

    def domains(self, role: Role) -> list[int]:
        """Return the domains that have examples in a role."""
        return list(self._split.of(role))

    def indices(self, role: Role, domain: int) -> Tensor:
        """Return the examples of a domain in a role."""
        return self._checked(self._split.of(role)[domain])

    def images(self, indices: Tensor) -> Images:
        """Return the images of some examples."""
        inputs = self._examples.inputs
        if isinstance(inputs, Tensor):
            raise TypeError("This data has features and no images.")
        return inputs.select(self._checked(indices))

    def features(self, indices: Tensor, views: Tensor | int = 0) -> Tensor:
        """Return the features of some examples [n, F], each in one of its views."""
        inputs = self._examples.inputs
        if self._encoded is not None:
            return self._encoded[views, self._checked(indices)]
        if isinstance(inputs, Images):
            raise TypeError("This data has images and no features.")
        return inputs[self._checked(indices)]

    def labels(self, indices: Tensor) -> Tensor:
        """Return the labels of some examples."""
        return self._examples.labels[self._checked(indices)]

    def open_target(self) -> None:
        """Allow the target to be read. Training and selection must be over."""
        self._sealed.zero_()

    def _checked(self, indices: Tensor) -> Tensor:
        if self._sealed[indices].any():
            raise TargetSealedError(
                "Target data is sealed until training and selection are over; only the final evaluation reads it."
            )
        return indices
