"""DomainBed's table: what its ``collect_results`` prints for the same accuracies."""

import numpy as np

from messi.reports.domainbed_table import domainbed_latex, domainbed_text

HEAD = "Dataset: PACS, model selection method: training-domain validation"
FOUND = {
    "erm": {"A": [84.0, 85.0, 86.5], "C_x": [80.04, 80.0, 80.02]},
    "messi": {"A": [88.0], "C_x": []},
}


def theirs(values: list[float]) -> str:
    """Return a cell as DomainBed's ``format_mean`` writes it, from shares."""
    data = [value / 100 for value in values]
    return f"{100 * np.mean(data):.1f} +/- {100 * np.std(list(data) / np.sqrt(len(data))):.1f}"


def test_the_text_is_domainbeds() -> None:
    first, head, erm, messi = domainbed_text(HEAD, ["A", "C_x"], FOUND).split("\n")
    assert first == f"-------- {HEAD}"
    assert head.split() == ["Algorithm", "A", "C_x", "Avg"]
    assert (
        erm
        == "  ".join(
            w.ljust(20) for w in ("erm", theirs([84.0, 85.0, 86.5]), theirs([80.04, 80.0, 80.02]), "82.6")
        ).rstrip()
    )
    assert messi.split() == ["messi", "88.0", "+/-", "0.0", "X", "X"]


def test_the_latex_is_domainbeds() -> None:
    lines = domainbed_latex(HEAD, ["A", "C_x"], FOUND).splitlines()
    assert lines[0].startswith(f"% {HEAD}")
    assert lines[1:4] == ["\\begin{center}", "\\adjustbox{max width=\\textwidth}{%", "\\begin{tabular}{lccc}"]
    assert lines[5] == "\\textbf{Algorithm} & \\textbf{A} & \\textbf{C\\_x} & \\textbf{Avg} \\\\"
    assert lines[7] == "erm & 85.2 $\\pm$ 0.6 & 80.0 $\\pm$ 0.0 & 82.6 \\\\"
    assert lines[8] == "messi & 88.0 $\\pm$ 0.0 & X & X \\\\"
    assert lines[-2:] == ["\\end{tabular}}", "\\end{center}"]
