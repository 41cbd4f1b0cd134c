"""What to know about features before training: their columns, equal rows, and columns without information."""

import torch

from messi.core.text import first_few
from messi.data.examples import Examples
from messi.data.features import constant_features
from messi.data.images import Images
from messi.data.seen_examples import example_digests
from messi.data.verify import Finding

_SHOWN = 3


def verify_features(examples: Examples) -> list[Finding]:
    """Return the groups of equal rows, and the columns that have a single value."""
    findings = []
    if not isinstance(examples.inputs, Images):
        names = constant_features(examples.inputs, torch.arange(len(examples)), examples.columns)
        findings += [Finding("constant", f"column '{name}' has the same value in all rows") for name in names]
    digests, order = example_digests(examples).sort(stable=True)
    _, counts = digests.unique_consecutive(return_counts=True)
    for group in order.split(counts.tolist()):
        if len(group) > 1:
            findings.append(Finding("duplicate", _described(examples, group)))
    return findings


def _described(examples: Examples, group: torch.Tensor) -> str:
    labels, domains = (
        sorted({names[index] for index in indices[group].tolist()})
        for names, indices in ((examples.classes, examples.labels), (examples.domain_names, examples.domains))
    )
    differ = [
        f"{what} {first_few(names, _SHOWN)}" for what, names in (("classes", labels), ("domains", domains)) if names[1:]
    ]
    numbers = first_few([str(index + 1) for index in sorted(group.tolist())], _SHOWN)
    return f"{len(group)} examples are equal (number {numbers})" + (f", with {' and '.join(differ)}" if differ else "")


def column_rows(examples: Examples) -> list[dict[str, str | int | float]]:
    """Return a row for every column of a table: what it contains, and how many values are missing."""
    rows: list[dict[str, str | int | float]] = []
    inputs = examples.inputs
    if isinstance(inputs, Images):
        return rows
    for column, values in zip(examples.columns, inputs.T, strict=False):
        known = values[~values.isnan()]
        if column.categories is None:
            content = f"{known.min():g} to {known.max():g}" if len(known) else ""
        else:
            content = f"{len(column.categories)}: {first_few(column.categories)}"
        kind = "numbers" if column.categories is None else "categories"
        rows.append({"column": column.name, "kind": kind, "missing": len(values) - len(known), "content": content})
    return rows
