"""A table in the format of DomainBed's ``collect_results``, as text and as LaTeX."""

import statistics
from collections.abc import Mapping, Sequence

from messi.reports.statistics import summarise
from messi.reports.table_formats import escape

Accuracies = Mapping[str, Sequence[float]]
"""The accuracies of a method in percent: by target, one for each seed."""
_MISSING = "X"
_WIDTH = 20


def domainbed_text(head: str, targets: Sequence[str], methods: Mapping[str, Accuracies]) -> str:
    """Return the table as DomainBed prints it: mean and standard error over seeds, and the mean over targets."""
    rows = [["Algorithm", *targets, "Avg"], *(_row(name, targets, methods[name], " +/- ") for name in methods)]
    lines = ("  ".join(cell.ljust(_WIDTH) for cell in row).rstrip() for row in rows)
    return "\n".join([f"-------- {head}", *lines])


def domainbed_latex(head: str, targets: Sequence[str], methods: Mapping[str, Accuracies]) -> str:
    """Return the table as DomainBed writes it with ``--latex``, after a comment that says what it shows."""
    names = " & ".join(f"\\textbf{{{escape(name)}}}" for name in ("Algorithm", *targets, "Avg"))
    rows = (_row(escape(name), targets, methods[name], " $\\pm$ ") for name in methods)
    lines = [
        f"% {head}; needs \\usepackage{{booktabs,adjustbox}}",
        "\\begin{center}",
        "\\adjustbox{max width=\\textwidth}{%",
        f"\\begin{{tabular}}{{l{'c' * (len(targets) + 1)}}}",
        "\\toprule",
        f"{names} \\\\",
        "\\midrule",
        *(f"{' & '.join(row)} \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}}",
        "\\end{center}",
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, targets: Sequence[str], found: Accuracies, sign: str) -> list[str]:
    summaries = [summarise(found[t], dispersion="standard error") if found.get(t) else None for t in targets]
    means = [one.mean for one in summaries if one]
    cells = [f"{one.mean:.1f}{sign}{one.spread or 0:.1f}" if one else _MISSING for one in summaries]
    average = f"{statistics.fmean(means):.1f}" if len(means) == len(targets) else _MISSING
    return [name, *cells, average]
