"""Embedding: examples as points of a plane, by the features before and after the experts.

Legend: N examples, R features.
"""

from typing import Any

import torch
from torch import Tensor

from messi.diagnostics.recording import Recording
from messi.diagnostics.sampling import balanced

POINTS = 600
"""Maximum number of examples, equally many of each domain."""


def principal_plane(features: Tensor) -> Tensor:
    """Return the first two principal components of features: [N, R] -> [N, 2], zeros if there are fewer.

    The sign of a component is arbitrary: here its largest entry is positive.
    """
    centred = features.double() - features.double().mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    directions = directions[:2]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    plane = centred @ (directions * largest.sign()).mT
    return torch.nn.functional.pad(plane, (0, 2 - plane.shape[1]))


def part(recording: Recording) -> dict[str, Any]:
    """Return examples of every domain as points, by the features of the encoder and by the input of the classifier."""
    seen = recording.roles
    encoded = [one.encoded for one in seen if one.encoded is not None]
    classified = [one.classified for one in seen if one.classified is not None]
    if not encoded or not classified:
        return {}
    names = [name for one in seen for name in one.domain_names]
    firsts = [0, len(seen[0].domain_names)]
    domains = torch.cat([one.domains + first for one, first in zip(seen, firsts, strict=False)])
    rows = balanced(domains, most=POINTS)
    roles = [one.role for one in seen for _ in one.labels]
    document = {
        "before": principal_plane(torch.cat(encoded)[rows]),
        "after": principal_plane(torch.cat(classified)[rows]),
        "domain": domains[rows],
        "class": torch.cat([one.labels for one in seen])[rows],
        "roles": [roles[row] for row in rows.tolist()],
    }
    routings = [one.routing for one in seen if one.routing is not None]
    if routings:
        document["expert"] = torch.cat(routings)[rows].argmax(-1)
    return {"embedding": document, "embedding_domains": names}
