"""The domain discriminator of adversarial training.

Legend: B examples, D width of the features, K domains.
"""

from itertools import pairwise

from torch import Tensor, nn


class Discriminator(nn.Module):
    """An MLP that predicts the domain from features, optionally with an embedding of the class added."""

    def __init__(
        self,
        features: int,
        num_domains: int,
        *,
        num_classes: int | None = None,
        width: int = 256,
        depth: int = 3,
        dropout: float = 0.0,
    ) -> None:
        """Build ``depth`` linear layers; with ``num_classes``, the discriminator also reads the class."""
        super().__init__()
        self.classes = None if num_classes is None else nn.Embedding(num_classes, features)
        layers: list[nn.Module] = []
        for before, after in pairwise([features, *[width] * (depth - 1)]):
            layers += [nn.Linear(before, after), nn.Dropout(dropout), nn.ReLU()]
        self.mlp = nn.Sequential(*layers, nn.Linear(width, num_domains))

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the logits of the domains: features [B, D], labels [B] -> [B, K]."""
        given = features if self.classes is None else features + self.classes(labels)
        logits: Tensor = self.mlp(given)
        return logits
