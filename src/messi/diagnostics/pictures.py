"""Small pictures of examples that say something: those that an expert is for, and mistakes.

Legend: N examples, M experts.
"""

import base64
import io
from typing import Any

import torch
from torch import Tensor

from messi.data.image_files import to_picture
from messi.data.sealed_data import SealedData
from messi.diagnostics.collected import Observed

SIDE, QUALITY = 56, 60
"""Pixels of the longer side at most, and WebP's quality: a kilobyte or two."""
MOST, MOST_OF_SOURCE = 8, 3
"""Pictures of an expert or a target, and of a source domain, of which there are several in every run."""
MOST_DOMAINS = 12
"""Domains whose mistakes are shown: nobody looks at hundreds."""


def experts_pictures(sealed: SealedData, seen: Observed, stream: torch.Generator) -> list[list[dict[str, Any]]]:
    """Return the examples with the largest weight of every expert; of equal ones any, not the first ones."""
    if seen.routing is None:
        return []
    order = torch.randperm(len(seen.routing), generator=stream)
    best = order[seen.routing[order].argsort(dim=0, descending=True, stable=True)[:MOST]]
    return [
        [_picture(sealed, seen, row) | {"weight": float(seen.routing[row, expert])} for row in rows.tolist()]
        for expert, rows in enumerate(best.T)
    ]


def mistakes_pictures(sealed: SealedData, seen: Observed, *, most: int) -> dict[str, list[dict[str, Any]]]:
    """Return up to ``most`` wrong answers in every domain, those that the model was surest of."""
    found = {}
    for number, name in enumerate(seen.domain_names[:MOST_DOMAINS]):
        rows = surest_mistakes(seen.logits, seen.labels, seen.domains == number, most=most)
        found[name] = [_mistake(sealed, seen, row) for row in rows]
    return found


def surest_mistakes(logits: Tensor, labels: Tensor, candidates: Tensor, *, most: int) -> list[int]:
    """Return up to ``most`` wrong answers among the candidates, a mask [N], from the surest down."""
    confidence, answers = logits.double().softmax(-1).max(-1)
    wrong = (candidates & (answers != labels)).nonzero().squeeze(1)
    order = confidence[wrong].argsort(descending=True, stable=True)
    rows: list[int] = wrong[order[:most]].tolist()
    return rows


def _mistake(sealed: SealedData, seen: Observed, row: int) -> dict[str, Any]:
    confidence, answer = seen.logits[row].double().softmax(-1).max(-1)
    picture = _picture(sealed, seen, row)
    del picture["domain"]
    return picture | {"predicted": sealed.classes[int(answer)], "confidence": float(confidence)}


def _picture(sealed: SealedData, seen: Observed, row: int) -> dict[str, Any]:
    return {
        "src": thumbnail(sealed.images(seen.examples[row : row + 1])[0]),
        "class": sealed.classes[int(seen.labels[row])],
        "domain": seen.domain_names[int(seen.domains[row])],
    }


def thumbnail(pixels: Tensor) -> str:
    """Return an image, uint8 [channels, height, width], as a small WebP in an address for web pages."""
    picture = to_picture(pixels).convert("RGB")
    picture.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    picture.save(content, "WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()
