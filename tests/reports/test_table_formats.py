import csv
import io
import re
from html.parser import HTMLParser

import pytest

from messi.reports.paper_tables import Table
from messi.reports.table_csv import as_csv
from messi.reports.table_html import html
from messi.reports.table_latex import escape, latex
from messi.reports.table_markdown import markdown

from .paper_table_sample import HOSTILE, TABLE, hostile_table


class Cells(HTMLParser):
    """The texts of all rows, and the attributes of their cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.values: list[str | None] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag == "td":
            self.values.append(dict(attrs).get("data-value"))
        if tag == "br":
            self.handle_data(" / ")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def latex_rows(text: str) -> list[list[str]]:
    body = text.partition("\\toprule\n")[2].partition("\\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith("\\\\")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", line[:-2])] for line in lines]


def test_markdown() -> None:
    lines = [line for line in markdown(TABLE).splitlines() if line.startswith("|")]
    assert lines == [
        "| Method | Backbone | PACS ↑ | Disc. ↓ |",
        "| --- | --- | ---: | ---: |",
        "| ERM | DeiT-S/16 | 86.0 ± 0.3 | **1.3 ± 0.2** (n = 2) failed [1] |",
        "| ↳ paper |  | 86.2 ± 0.1 (\u22120.2) |  |",
        "| GMoE | DeiT-S/16 |  | **1.3 ± 0.1** |",
        "| MESSI | DeiT-S/16 | **90.5** (n = 1) | incomplete |",
        "| ↳ paper |  | 90.9 (\u22120.4) | \u22120.2 ± 0.3 |",
    ]
    assert "[1] seed 2: out of memory" in markdown(TABLE)


def test_csv_has_one_line_per_cell_with_all_digits() -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv(TABLE))))
    assert [(line["Method"], line["column"]) for line in lines] == [
        (method, column) for method in ("ERM", "GMoE", "MESSI") for column in ("PACS", "Disc.")
    ]
    first = lines[0]
    assert [first[key] for key in ("mean", "spread", "n", "paper", "paper_spread")] == [
        "86.04",
        "0.31",
        "3",
        "86.2",
        "0.1",
    ]
    assert float(first["difference"]) == pytest.approx(-0.16)
    assert [line["state"] for line in lines] == ["done", "failed", "empty", "done", "done", "incomplete"]
    assert [lines[2][key] for key in ("mean", "spread", "n", "paper", "difference")] == [""] * 5
    assert lines[1]["reason"] == "seed 2: out of memory"
    assert {(line["seeds"], line["selection"], line["version"]) for line in lines} == {
        ("0 1 2", "source_val", "0.1.0 (abc1234)")
    }


def test_latex() -> None:
    text = latex(TABLE)
    assert latex_rows(text) == [
        ["Method", "Backbone", "PACS $\\uparrow$", "Disc. $\\downarrow$"],
        [
            "ERM",
            "DeiT-S/16",
            "86.0\\ms{0.3}",
            "\\textbf{1.3}\\ms{\\textbf{0.2}} {\\scriptsize ($n=2$)} failed\\textsuperscript{[1]}",
        ],
        ["\\quad\\scriptsize paper", "", "\\scriptsize 86.2\\ms{0.1} ($-$0.2)", ""],
        ["GMoE", "DeiT-S/16", "", "\\textbf{1.3}\\ms{\\textbf{0.1}}"],
        ["\\textbf{MESSI}", "DeiT-S/16", "\\textbf{90.5} {\\scriptsize ($n=1$)}", "incomplete"],
        ["\\quad\\scriptsize paper", "", "\\scriptsize 90.9 ($-$0.4)", "\\scriptsize $-$0.2\\ms{0.3}"],
    ]
    assert text.count("\\rowcolor{gray!10}\n") == 2
    assert text.count("\\midrule") == 2
    assert "[1] seed 2: out of memory" in text
    assert "Selection: source\\_val." in text


@pytest.mark.parametrize("table", [TABLE, hostile_table()])
def test_latex_is_well_formed(table: Table) -> None:
    text = latex(table)
    plain = re.sub(r"\\[&%$#_{}\\]", "", text.partition("\n")[2])  # without the comment and what is escaped
    depth = 0
    for sign in plain:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    assert plain.count("#") == 1  # the argument of \ms
    assert not set("%~^<>|") & set(plain)
    assert re.findall(r"\\begin\{(\w+)\}", text) == list(reversed(re.findall(r"\\end\{(\w+)\}", text)))
    assert {len(row) for row in latex_rows(text)} == {4}
    # After a line break a bracket or a star would be its argument.
    assert not re.search(r"\\\\\s*[\[*]", text)


def test_latex_keeps_every_text() -> None:
    assert escape(r"a_b & 5% \x") == r"a\_b \& 5\% \textbackslash{}x"
    assert escape("[1] * \u2212 \u00d7") == r"{[}1] {*} $-$ $\times$"


def test_html() -> None:
    page = Cells(html(TABLE))
    assert page.open == []
    assert page.rows == [
        ["Method", "Backbone", "PACS ↑", "Disc. ↓"],
        ["ERM", "DeiT-S/16", "86.0 ± 0.3 / paper 86.2 ± 0.1 (\u22120.2)", "1.3 ± 0.2 (n = 2) failed[1]"],
        ["GMoE", "DeiT-S/16", "", "1.3 ± 0.1"],
        ["MESSI", "DeiT-S/16", "90.5 (n = 1) / paper 90.9 (\u22120.4)", "incomplete / paper \u22120.2 ± 0.3"],
    ]
    # Sorting reads the whole number; a cell without one has none.
    assert page.values == [None, "86.04", "1.26", None, None, "1.34", None, "90.46", None]
    assert page.tags.count("tbody") == 2
    assert page.tags.count("strong") == 3
    assert "seed 2: out of memory" in html(TABLE)


def test_nothing_escapes_its_format() -> None:
    table = hostile_table()
    page = Cells(html(table))
    assert "script" not in page.tags
    assert page.rows[1][0] == HOSTILE
    assert next(csv.DictReader(io.StringIO(as_csv(table))))[HOSTILE] == HOSTILE
    lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}
    assert "<" not in markdown(table).replace("\\<", "")
