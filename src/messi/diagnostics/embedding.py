"""Many features as points of a plane."""

import torch
from torch import Tensor


def principal_plane(features: Tensor) -> Tensor:
    """Return the first two principal components of features: [N, R] -> [N, 2], zeros where there are fewer.

    The sign of a component is a matter of taste: here its entry of the largest size is positive.
    """
    centred = features.double() - features.double().mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    directions = directions[:2]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    plane = centred @ (directions * largest.sign()).mT
    return torch.nn.functional.pad(plane, (0, 2 - plane.shape[1]))
