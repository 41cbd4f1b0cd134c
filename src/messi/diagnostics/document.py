"""One document per run: everything that is measured about what the selected model learned.

Alignment, probe and routing are of the held-out part of the source domains. Calibration, the embedding and the mistakes
are of the target, too, so training and selection must be over.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from messi.algorithms.common.base import Algorithm
from messi.core.records import Role
from messi.core.seeding import generator
from messi.data.loader import Loader
from messi.data.sealed_data import SealedData
from messi.diagnostics import routing
from messi.diagnostics.alignment import class_conditional_energy
from messi.diagnostics.calibration import CalibrationTally
from messi.diagnostics.collected import Observed, observe
from messi.diagnostics.embedding import principal_plane
from messi.diagnostics.pictures import MOST, MOST_OF_SOURCE, experts_pictures, mistakes_pictures
from messi.diagnostics.probe import domain_probe
from messi.diagnostics.sampling import at_most_per_cell, balanced, spaced
from messi.diagnostics.slots import SHARPNESS, domain_pairs, responsibilities
from messi.diagnostics.to_json import cells, plain

PER_CELL = 100
"""Examples of a class in a domain, drawn at random, that energy distances and the probe look at."""
PAIRED_DOMAINS = 20
"""Domains whose pairs are looked at: the first ones, for the pairs of hundreds would fill the disk."""
PROBED_CLASSES = 60
"""Classes that the probe looks at, evenly spaced where there are more: each takes some 30 ms."""
POINTS = 600
"""Examples in the embedding, as many of each domain."""

Document = dict[str, Any]


def diagnose(algorithm: Algorithm, loader: Loader, accuracy: Mapping[str, Mapping[str, float]]) -> Document:
    """Return the document of a model; plain JSON, numbers with 4 significant digits.

    Args:
        algorithm: the selected model.
        loader: gives the data of the run, with the target open.
        accuracy: by role, "source_val" and "target", and domain, as measured on all examples.

    """
    sealed = loader.data
    source, target = observe(algorithm, loader, "source_val"), observe(algorithm, loader, "target")
    seen = [one for one in (source, target) if one is not None]
    document = {
        "router": seen[0].router if seen else "none",
        "domains": source.domain_names if source else [],
        "classes": sealed.classes,
        "experts": 0 if not seen or seen[0].routing is None else seen[0].routing.shape[1],
        "role": "source_val",
        "examples": len(source.labels) if source else 0,
        "calibration": {one.role: _calibration(one) for one in seen},
        "accuracy": _accuracy(accuracy),
    }
    if source is not None:
        document |= (
            _routing(source, len(sealed.classes)) | _similarity(source) | _alignment(source, len(sealed.classes))
        )
    document |= _embedding(seen)
    if sealed.has_images:
        document["pictures"] = _pictures(sealed, source, target)
    result: Document = plain(document)
    return result


def _routing(seen: Observed, num_classes: int) -> Document:
    """Return what the router does, and which slots it would have aligned."""
    if seen.routing is None:
        return {}
    num_domains, num_experts = len(seen.domain_names), seen.routing.shape[1]
    tally = routing.RoutingTally(num_domains=num_domains, num_classes=num_classes, num_experts=num_experts)
    tally.update(seen.routing, seen.labels, seen.domains)
    tables = tally.result()
    paired = tables.by_domain_and_class[:PAIRED_DOMAINS]
    return {
        "routing": {  # P(e | d, y) is in the records: of the target, too, and of all examples
            "entropy": tables.entropy,
            "load": tables.load,
            "load_std": routing.load_deviation(tables.load),
            "dead_threshold": routing.DEAD_BELOW,
            "dead_rate": routing.dead_rate(tables.load),
            "template_divergence": routing.template_divergence(tables.by_domain_and_class),
            "by_domain": tables.by_domain,
            "by_class": cells(tables.by_class),
        },
        "slots": {
            "pairs": domain_pairs(len(paired)),
            "sharpness": SHARPNESS,
            "responsibilities": cells(responsibilities(paired)),
        },
    }


def _similarity(seen: Observed) -> Document:
    found = seen.specialisation
    if found is None or len(found.cosine) == 1:
        return {}
    numbers = {"mean_off_diagonal": found.mean_off_diagonal, "effective_rank": found.effective_rank}
    return {"similarity": {"cosine": found.cosine, **numbers}}


def _alignment(seen: Observed, num_classes: int) -> Document:
    """Return how far the domains are apart in what the classifier reads, and whether a probe can tell them apart."""
    if seen.classified is None:
        return {}
    rows = at_most_per_cell(seen.labels, seen.domains, most=PER_CELL, stream=generator("diagnostics", "cells"))
    rows = rows[seen.domains[rows] < PAIRED_DOMAINS]
    features, labels, domains = seen.classified[rows], seen.labels[rows], seen.domains[rows]
    num_domains = min(len(seen.domain_names), PAIRED_DOMAINS)
    energy = class_conditional_energy(features, labels, domains, num_classes=num_classes, num_domains=num_domains)
    document: Document = {}
    if not energy.isnan().all():
        document["discrepancy"] = {"energy": float(energy.nanmean()), "pairs": energy, "examples": len(rows)}
    probed = torch.isin(labels, spaced(num_classes, PROBED_CLASSES))
    stream = generator("diagnostics", "probe")
    if probe := domain_probe(features[probed], labels[probed], domains[probed], stream=stream):
        document["probe"] = asdict(probe) | {"examples": int(probed.sum())}
    return document


def _calibration(seen: Observed) -> Document:
    tally = CalibrationTally()
    tally.update(seen.logits, seen.labels)
    return asdict(tally.result())


def _accuracy(accuracy: Mapping[str, Mapping[str, float]]) -> Document:
    everywhere = [(value, name) for by_domain in accuracy.values() for name, value in by_domain.items()]
    document: Document = {role: dict(by_domain) for role, by_domain in accuracy.items()}
    if everywhere:
        value, name = min(everywhere)
        document["worst"] = {"domain": name, "accuracy": value}
    return document


def _embedding(seen: list[Observed]) -> Document:
    """Return some examples of every domain as points, by what the encoder says and by what the classifier reads."""
    encoded = [one.encoded for one in seen if one.encoded is not None]
    classified = [one.classified for one in seen if one.classified is not None]
    if not encoded or not classified:
        return {}
    names = [name for one in seen for name in one.domain_names]
    firsts = [0, len(seen[0].domain_names)]
    domains = torch.cat([one.domains + first for one, first in zip(seen, firsts, strict=False)])
    rows = balanced(domains, most=POINTS)
    roles: list[Role] = [one.role for one in seen for _ in one.labels]
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


def _pictures(sealed: SealedData, source: Observed | None, target: Observed | None) -> Document:
    pictures: Document = {}
    if source is not None and source.routing is not None:
        pictures["experts"] = experts_pictures(sealed, source, generator("diagnostics", "pictures"))
    if source is not None:
        pictures["source_mistakes"] = mistakes_pictures(sealed, source, most=MOST_OF_SOURCE)
    if target is not None:
        pictures["mistakes"] = mistakes_pictures(sealed, target, most=MOST)
    return pictures
