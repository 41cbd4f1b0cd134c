"""A batch cut into its domains, for methods that treat each of them by itself.

Legend: B examples, P domains in the batch, n = B / P examples of each.
"""

from torch import Tensor

from messi.core.errors import MessiError


class SplitByDomain:
    """Finds the examples of every domain in a batch; all of its domains have the same number of them.

    A recorded step has fixed shapes and cannot wait to be told how many domains a batch holds. The loader draws equally
    many domains, and equally many images of each, at every step: so the number is read from the first batch of a size
    and holds for those after it. On a CPU, where looking costs nothing, every batch is looked at.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        """Domains in a batch, by the size of the batch."""

    def __call__(self, domains: Tensor) -> Tensor:
        """Return the places of every domain's examples, in the order of the domains: [B] -> [P, n]."""
        size = len(domains)
        if size not in self._numbers or domains.device.type == "cpu":
            self._numbers[size] = _number(domains)
        return domains.argsort(stable=True).view(self._numbers[size], -1)


def _number(domains: Tensor) -> int:
    """Return how many domains there are, and wait for the device to say so."""
    counts: list[int] = domains.unique(return_counts=True)[1].tolist()
    if len(set(counts)) != 1:
        raise MessiError(
            "This method treats every domain by itself and needs the same number of examples of each in a batch, "
            f"but they have {', '.join(map(str, counts))}."
        )
    return len(counts)
