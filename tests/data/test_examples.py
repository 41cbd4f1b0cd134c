"""The digest of examples."""

import torch

from messi.data.examples import digest


def test_the_fingerprint_changes_with_inputs_labels_and_domains() -> None:
    inputs, labels, domains = torch.rand(4, 2), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    whole = {digest(inputs, labels, domains), digest(inputs, 1 - labels, domains), digest(inputs, labels, 1 - domains)}
    assert len({*whole, digest(inputs + 1, labels, domains)}) == 4
    assert digest(inputs, labels, domains) in whole
