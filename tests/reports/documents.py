"""Realistic diagnostics of a run, made from random numbers."""

import base64
import io
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

Array = np.ndarray[Any, np.dtype[np.float64]]


def document(
    *,
    domains: Sequence[str] = ("photo", "art"),
    targets: Sequence[str] = ("sketch",),
    classes: Sequence[str] = ("cat", "dog"),
    experts: int = 3,
    points: int = 60,
    pictures: int = 2,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the content of a ``diagnostics.json``; with no experts, that of a method without a router."""
    random = np.random.default_rng(seed)
    calibration = {"source_val": _calibration(random, 0.02), "target": _calibration(random, 0.15)}
    found: dict[str, Any] = {
        "router": "head" if experts else "none",
        "domains": list(domains),
        "classes": list(classes),
        "experts": experts,
        "role": "source_val",
        "examples": 40 * len(domains),
        "discrepancy": {"energy": 0.2345, "pairs": [[0.2] * len(classes)], "examples": 30},
        "probe": {"accuracy": 0.61, "chance": 1 / len(domains), "examples": 20},
        "calibration": calibration,
        "accuracy": {"worst": {"domain": domains[-1], "accuracy": 0.55}},
        "embedding_domains": [*domains, *targets],
        "embedding": _embedding(random, len(domains), len(targets), len(classes), experts, points),
        "pictures": {
            "mistakes": {name: _mistakes(random, classes, pictures) for name in targets},
            "source_mistakes": {name: _mistakes(random, classes, min(pictures, 3)) for name in domains[:12]},
        },
    }
    return found | _experts(random, found, pictures) if experts else found


def _experts(random: np.random.Generator, found: dict[str, Any], pictures: int) -> dict[str, Any]:
    names, classes, experts = found["domains"], found["classes"], found["experts"]
    cells = random.dirichlet([0.3] * experts, (len(names), len(classes)))
    gates = 1 / (1 + np.exp(-4 * cells))
    pairs = list(itertools.combinations(range(len(names)), 2))
    weights: list[Any] = [_rounded(gates[i] * gates[j]) for i, j in pairs]
    if len(names) > 2:  # the first domain lacks the last class
        for (i, _), row in zip(pairs, weights, strict=True):
            row[-1] = row[-1] if i else None
    load = cells.mean((0, 1))
    cosine = np.eye(experts) + random.normal(0, 0.1, (experts, experts)) * (1 - np.eye(experts))
    shelves = [_thumbnails(random, names, classes, pictures) for _ in range(experts)]
    return {
        "routing": {
            "entropy": 0.1234,
            "load": _rounded(load),
            "load_std": round(float(load.std()), 4),
            "dead_threshold": 0.01,
            "dead_rate": 1 / experts,
            "template_divergence": 0.0312,
            "by_domain": _rounded(cells.mean(1)),
            "by_class": _rounded(cells.mean(0)),
        },
        "slots": {"pairs": [list(pair) for pair in pairs], "sharpness": 4.0, "responsibilities": weights},
        "similarity": {"cosine": _rounded(cosine), "mean_off_diagonal": 0.0123, "effective_rank": experts - 0.5},
        "pictures": {"experts": shelves, **found["pictures"]},
    }


def _embedding(
    random: np.random.Generator, sources: int, targets: int, classes: int, experts: int, points: int
) -> dict[str, Any]:
    domain, label = random.integers(sources + targets, size=points), random.integers(classes, size=points)
    by_domain, by_class = random.normal(0, 3, (sources + targets, 2)), random.normal(0, 3, (classes, 2))
    noise = random.normal(0, 0.6, (2, points, 2))
    found = {
        "before": _rounded(by_domain[domain] + by_class[label] * 0.4 + noise[0]),
        "after": _rounded(by_class[label] + by_domain[domain] * 0.1 + noise[1]),
        "domain": domain.tolist(),
        "class": label.tolist(),
        "roles": ["source_val" if one < sources else "target" for one in domain.tolist()],
    }
    return found | ({"expert": ((label + domain) % experts).tolist()} if experts else {})


def _calibration(random: np.random.Generator, over: float) -> dict[str, Any]:
    sure = np.linspace(0.4, 0.98, 9)
    right = np.clip(sure - over + random.normal(0, 0.02, 9), 0, 1)
    counts = (10 * np.exp(4 * (sure - 0.4))).astype(int)
    bins = [
        {"confidence": s, "accuracy": r, "count": int(n)}
        for s, r, n in zip(_rounded(sure), _rounded(right), counts, strict=True)
    ]
    return {"ece": over, "bins": bins}


def _thumbnails(
    random: np.random.Generator, domains: Sequence[str], classes: Sequence[str], number: int
) -> list[dict[str, Any]]:
    picked = random.integers((len(domains), len(classes)), size=(number, 2))
    return [
        {"src": _picture(random), "class": classes[c], "domain": domains[d], "weight": round(0.9 - 0.05 * place, 4)}
        for place, (d, c) in enumerate(picked.tolist())
    ]


def _mistakes(random: np.random.Generator, classes: Sequence[str], number: int) -> list[dict[str, Any]]:
    return [
        {
            "src": _picture(random),
            "class": classes[place % len(classes)],
            "predicted": classes[(place + 1) % len(classes)],
            "confidence": round(0.99 - 0.03 * place, 4),
        }
        for place in range(number)
    ]


def _picture(random: np.random.Generator) -> str:
    """Return a thumbnail with the file size of a photograph."""
    coarse = Image.fromarray(random.integers(0, 256, (9, 9, 3), dtype=np.uint8)).resize(
        (56, 56), Image.Resampling.BICUBIC
    )
    pixels = np.asarray(coarse, dtype=np.int16) + random.integers(-18, 19, (56, 56, 3), dtype=np.int16)
    content = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(content, "webp", quality=70)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()


def _rounded(values: Array) -> list[Any]:
    rounded: list[Any] = np.round(values, 4).tolist()
    return rounded
