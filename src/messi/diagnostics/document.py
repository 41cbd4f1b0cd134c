"""``diagnostics.json``: all measures of what the selected model of a run learned.

Each part is a function in the file of its measure; to add one, list it in ``PARTS``. Calibration, embedding and
mistakes include the target, so training and selection must be over. All other parts only read the held-out part of the
source domains.
"""

from collections.abc import Callable, Mapping
from typing import Any

from messi.algorithms.common.base import Algorithm
from messi.data.loader import Loader
from messi.diagnostics import alignment, calibration, embedding, pictures, probe, routing, slots, specialisation
from messi.diagnostics.recording import Recording, record
from messi.diagnostics.to_json import plain

Document = dict[str, Any]


def diagnose(algorithm: Algorithm, loader: Loader, accuracy: Mapping[str, Mapping[str, float]]) -> Document:
    """Return the document of a model: plain JSON, numbers with 4 significant digits.

    Args:
        algorithm: the selected model.
        loader: provides the data of the run, with the target open.
        accuracy: by role, "source_val" and "target", and domain, as measured on all examples.

    """
    recording = record(algorithm, loader, accuracy)
    document: Document = {}
    for part in PARTS:
        document |= part(recording)
    result: Document = plain(document)
    return result


def _overview(recording: Recording) -> Document:
    source, roles = recording.source, recording.roles
    return {
        "router": roles[0].router if roles else "none",
        "domains": source.domain_names if source else [],
        "classes": recording.data.classes,
        "experts": 0 if not roles or roles[0].routing is None else roles[0].routing.shape[1],
        "role": "source_val",
        "examples": len(source.labels) if source else 0,
    }


def _accuracy(recording: Recording) -> Document:
    accuracy = recording.accuracy
    everywhere = [(value, name) for by_domain in accuracy.values() for name, value in by_domain.items()]
    document: Document = {role: dict(by_domain) for role, by_domain in accuracy.items()}
    if everywhere:
        value, name = min(everywhere)
        document["worst"] = {"domain": name, "accuracy": value}
    return {"accuracy": document}


PARTS: tuple[Callable[[Recording], Document], ...] = (
    _overview,
    calibration.part,
    _accuracy,
    routing.part,
    slots.part,
    specialisation.part,
    alignment.part,
    probe.part,
    embedding.part,
    pictures.part,
)
"""Each returns its keys of the document; none if the recording lacks the data for it."""
