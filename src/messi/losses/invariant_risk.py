"""The penalty of invariant risk minimisation, from two halves of every domain.

    mean over domains of  d/ds R_even(s w) * d/ds R_odd(s w)   at s = 1,   R the mean cross-entropy of the half

The product of two independent estimates is unbiased for the squared gradient; the square of one is not. The
derivative for one example is  sum_c p_c l_c - l_y  with the logits l and their softmax p: no second backward pass.

Legend: B examples, C classes, K domains.
"""

from torch import Tensor

from messi.discrepancy.domains import membership, ranks
from messi.losses.by_domain import domain_means, mean_of_present


def scale_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    """Return d/ds of the cross-entropy of s * logits at s = 1 for every example: [B, C], [B] -> [B]."""
    logits = logits.float()
    expected = (logits.softmax(-1) * logits).sum(-1)
    return expected - logits.gather(-1, labels[:, None]).squeeze(-1)


def invariant_risk(logits: Tensor, labels: Tensor, domains: Tensor, num_domains: int) -> Tensor:
    """Return the penalty, halves being the even and the odd examples of a domain in the order of the batch.

    A domain with one example has an empty half and contributes 0. Shapes: logits [B, C], labels [B], domains [B].
    """
    gradients = scale_gradients(logits, labels)
    members = membership(domains, num_domains)
    even = ranks(members) % 2 == 0
    products = domain_means(gradients, members & even) * domain_means(gradients, members & ~even)
    return mean_of_present(products, members.any(1))
