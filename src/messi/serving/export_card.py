"""The model card: a Markdown page that says what an exported model is, how good it is, and how to call it."""

import json
from collections.abc import Iterable
from typing import Literal

from messi.core.run_documents import Result
from messi.core.text import printable
from messi.reports.class_scores import CLASS_SCORES, EXPLANATION
from messi.serving.export_calls import call
from messi.serving.export_facts import Facts, licences, published


def card(facts: Facts, to: str, file: str) -> str:
    """Return the card of an exported file."""
    sections = {
        "Data and domains": _data(facts),
        "Expected accuracy": _accuracy(facts),
        "Training": _training(facts),
        "Intended use": _use(facts),
        "How to call it": call(facts, to, file),
        "Licence": _licence(facts),
    }
    parts = [f"## {title}\n\n{text}" for title, text in sections.items()]
    return "\n\n".join([_front_matter(facts, to), f"# {_text(facts.summary)}", *parts]) + "\n"


def _front_matter(facts: Facts, to: str) -> str:
    """Return the header that model hubs read; a JSON value is a YAML value."""
    images = len(facts.model.spec.shape) == 3
    values = {
        "library_name": to if to == "onnx" else "pytorch",
        "pipeline_tag": "image-classification" if images else "tabular-classification",
        "license": "other",
        "license_name": facts.licence,
        "tags": [*dict.fromkeys(("domain-generalization", "messi", facts.method))],
        "datasets": [facts.data],
    }
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in values.items()), "---"])


def _data(facts: Facts) -> str:
    known, manifest = facts.description, published(facts.data)
    rows = {
        "data": f"{manifest.title} ({manifest.homepage})" if manifest else _code(facts.data),
        "source domains (trained on)": _codes(known.sources),
        "held-out domains": _codes(known.target) or "none: trained on all domains",
        f"classes ({len(known.classes)})": _codes(known.classes),
        "fingerprint of the data": _code(known.data),
    }
    return _table(("", ""), rows.items())


def _accuracy(facts: Facts) -> str:
    """Return what is known about new domains, and what is not."""
    known, result = facts.description, facts.result
    parts = []
    if known.expected:
        parts.append(
            f"On a new domain: **{known.expected}**. These are models of the same method that were trained without the "
            "domain they were measured on; this model was then trained on all domains."
        )
    if result and result.target:
        own = [(*_scores(result, "target", domain), "this one") for domain in result.target]
        others = [
            (*_scores(other, "target", domain), "another, trained in the same way without this domain")
            for domain, other in facts.others.items()
        ]
        parts.append(_table(("held-out domain", *_score_names(result), "model"), own + others))
        parts.append(f"Measured once, after the model was selected, on this part of the domain: {result.target_part}.")
    if result and result.source_val:
        validated = [_scores(result, "source_val", domain) for domain in result.source_val]
        parts.append(_table(("source domain, validation part", *_score_names(result)), validated))
    if result and result.class_scores:
        parts.append(f"The classes are unbalanced, and accuracy favours frequent ones. {EXPLANATION}.")
    if not (known.expected or (result and result.target)):
        parts.append(
            "The accuracy on a new domain is **not known**: no held-out domain was measured with this model"
            + ("." if result else ", or the export was made from a model file without its run folder.")
        )
    elif not known.expected and len(result.target if result else ()) + len(facts.others) < 2:
        parts.append("One held-out domain says little about the next one; no others were measured.")
    return "\n\n".join(parts)


def _score_names(result: Result) -> tuple[str, ...]:
    """Return the heads of the columns of scores; accuracy alone if the classes are balanced."""
    return ("accuracy %", *(column.name for column in CLASS_SCORES.values() if result.class_scores))


def _scores(result: Result, role: Literal["target", "source_val"], domain: str) -> tuple[str, ...]:
    """Return the name of a domain and its scores in percent."""
    accuracy, scores = getattr(result, role)[domain], result.class_scores.get(role, {}).get(domain)
    shares = (accuracy, *(getattr(scores, name) for name in CLASS_SCORES if scores))
    return (_code(domain), *(f"{100 * share:.1f}" for share in shares))


def _training(facts: Facts) -> str:
    known, result, config = facts.description, facts.result, facts.description.config
    rows = {
        "method": _code(facts.method),
        "backbone": _code(facts.backbone),
        "steps": f"{config['training']['steps']:,}",
        "seed": str(config["seed"]),
        "selection": _selection(facts),
        "run": _code(known.run or "not recorded"),
        "messi": _code(known.version),
    }
    if result and result.recipe:
        rows["recipe"] = _code(result.recipe)
    return _table(("", ""), rows.items())


def _selection(facts: Facts) -> str:
    known, result = facts.description, facts.result
    if known.average:
        return f"the {known.average.choice} average of {len(known.average.runs)} runs"
    steps = f"step {known.step:,}"
    if known.averaged_steps:
        steps = f"the average of steps {known.averaged_steps[0]:,} to {known.averaged_steps[1]:,}"
    return f"{steps}, selected by {result.selection}" if result and not result.averaged else steps


def _use(facts: Facts) -> str:
    kind = "images" if len(facts.model.spec.shape) == 3 else "rows of features"
    return (
        f"Classifies {kind} of the same kind as the training data into exactly the classes above, also from domains "
        "that it was not trained on. It has no class for anything else: every input gets one of these classes. "
        "Probabilities are those of the training domains; on a new domain they may be overconfident, and the accuracy "
        "may lie outside the range above. Measure it on labelled examples of your domain before you rely on it "
        "(`messi evaluate`). It was not examined for fairness or for deliberately misleading inputs."
    )


def _licence(facts: Facts) -> str:
    parts = _table(("part", "licence"), ((part, _text(terms)) for part, terms in licences(facts.description).items()))
    return f"{_text(facts.licence)}\n\nWhat the model was made from:\n\n{parts}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(name: str) -> str:
    """Return a name as code, so that a renderer does not read it as Markdown or HTML."""
    return f"`{printable(name).replace('`', chr(39)).replace('|', '/')}`"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(map(_code, names))


def _text(text: str) -> str:
    """Return text that a renderer shows as it is."""
    return printable(text).replace("<", "&lt;").replace("|", "/").replace("`", "'")
