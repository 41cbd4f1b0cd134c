"""Split a batch by domain, for methods that process each domain separately.

Legend: B examples, P domains in the batch, n = B / P examples of each.
"""

from torch import Tensor

from messi.core.errors import MessiError


class SplitByDomain:
    """Finds the examples of every domain in a batch, in which all domains have the same number of examples.

    A captured step has fixed shapes and cannot wait for the device to count the domains of a batch. The loader draws
    the same number of domains, and of images per domain, at every step. The number of domains is therefore counted in
    the first batch of each size and then reused. On a CPU, where counting is cheap, it is counted in every batch.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        """Domains in a batch, by the size of the batch."""

    def __call__(self, domains: Tensor) -> Tensor:
        """Return the positions of every domain's examples, in the order of the domains: [B] -> [P, n]."""
        size = len(domains)
        if size not in self._numbers or domains.device.type == "cpu":
            self._numbers[size] = _number(domains)
        return domains.argsort(stable=True).view(self._numbers[size], -1)


def _number(domains: Tensor) -> int:
    """Count the domains; this waits for the device."""
    counts: list[int] = domains.unique(return_counts=True)[1].tolist()
    if len(set(counts)) != 1:
        raise MessiError(
            "This method processes every domain separately and requires the same number of examples of each in a "
            f"batch, but they have {', '.join(map(str, counts))}."
        )
    return len(counts)
