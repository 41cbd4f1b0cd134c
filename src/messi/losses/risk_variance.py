"""The variance of the domains' risks, which V-REx punishes.

Legend: K domains.
"""

from torch import Tensor

from messi.losses.by_domain import mean_of_present


def risk_variance(risks: Tensor, present: Tensor) -> Tensor:
    """Return the mean squared deviation from the mean over the present domains: risks [K], present [K] -> scalar."""
    return mean_of_present((risks - mean_of_present(risks, present)).square(), present)
