import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Row, Table
from messi.reports.table_formats import as_csv, escape, html, latex, markdown, without_escapes

from .table_sample import HOSTILE, PROVENANCE, TABLE, hostile_table


class Cells(HTMLParser):
    """The texts of all rows, and the attributes of their cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.values: list[str | None] = []
        self.titles: list[str] = []
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
        self.titles += [title for name, title in attrs if name == "title" and title]
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
        "| ERM | DeiT-S/16 | 86.0 ± 0.3 | 1.3 ± 0.2 (n = 2) failed [1] |",
        "| ↳ paper |  | 86.2 ± 0.1 (\u22120.2) |  |",
        "| GMoE | DeiT-S/16 |  | 1.3 ± 0.1 |",
        "| OMoE | DeiT-S/16 | **87.3 ± 0.4** | 1.3 ± 0.3 |",
        "| MESSI | DeiT-S/16 | 90.5 (n = 1) incomplete | incomplete |",
        "| ↳ paper |  | 90.9 (\u22120.4) | \u22120.2 ± 0.3 |",
    ]
    assert "[1] seed 2: out of memory" in markdown(TABLE)


def test_the_title_is_above_the_table_and_the_rest_in_the_caption() -> None:
    table = replace(TABLE, title="Accuracy <all>", explanation="By method")
    rest = table.about
    assert rest.startswith("By method. Data: ")
    assert table.caption == f"Accuracy <all>. {rest}"
    assert markdown(table).startswith("## Accuracy \\<all\\>\n\nBy method. ")
    page = html(table)
    assert page.index("<h2>Accuracy &lt;all&gt;</h2>") < page.index("<table") < page.index("By method. ")
    assert f"\\caption{{{escape(table.caption)}}}" in latex(table)


def test_csv_has_one_line_per_cell_with_all_digits() -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv(TABLE))))
    assert [(line["Method"], line["column"]) for line in lines] == [
        (method, column) for method in ("ERM", "GMoE", "OMoE", "MESSI") for column in ("PACS", "Disc.")
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
    assert [line["state"] for line in lines] == [
        *("done", "failed", "empty", "done", "done", "done", "incomplete", "incomplete")
    ]
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
            "1.3\\ms{0.2} {\\scriptsize ($n=2$)} failed\\textsuperscript{[1]}",
        ],
        ["\\quad\\scriptsize paper", "", "\\scriptsize 86.2\\ms{0.1} ($-$0.2)", ""],
        ["GMoE", "DeiT-S/16", "", "1.3\\ms{0.1}"],
        ["OMoE", "DeiT-S/16", "\\textbf{87.3}\\ms{\\textbf{0.4}}", "1.3\\ms{0.3}"],
        ["\\textbf{MESSI}", "DeiT-S/16", "90.5 {\\scriptsize ($n=1$)} incomplete", "incomplete"],
        ["\\quad\\scriptsize paper", "", "\\scriptsize 90.9 ($-$0.4)", "\\scriptsize $-$0.2\\ms{0.3}"],
    ]
    assert text.count("\\rowcolor{gray!10}\n") == 2
    assert text.count("\\midrule") == 2
    assert "[1] seed 2: out of memory" in text
    assert "Selection: source\\_val." in text


@pytest.mark.parametrize("name", ["erm_swad", "a\\_b", "x*y|[z]<w>~$`", "plain"])
def test_a_terminal_shows_names_as_they_are(name: str) -> None:
    table = replace(TABLE, title=name)
    assert without_escapes(markdown(table)).startswith(f"## {name}\n")


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
        ["ERM", "DeiT-S/16", "86.0 ± 0.3 / paper 86.2 ± 0.1 (\u22120.2)", "1.3 ± 0.2 n = 2 failed[1]"],
        ["GMoE", "DeiT-S/16", "", "1.3 ± 0.1"],
        ["OMoE", "DeiT-S/16", "87.3 ± 0.4", "1.3 ± 0.3"],
        ["MESSI", "DeiT-S/16", "90.5 n = 1 … / paper 90.9 (\u22120.4)", "… / paper \u22120.2 ± 0.3"],
    ]
    # Sorting reads the whole number; without one the value is empty, or words would be sorted among the numbers.
    assert page.values == [
        *(None, "86.04", "1.26"),
        *(None, "", "1.34"),
        *(None, "87.31", "1.31"),
        *(None, "90.46", ""),
    ]
    assert page.titles == ["incomplete: 2 of 3 seeds are missing", "incomplete: 3 of 3 seeds are missing"]
    assert page.tags.count("tbody") == 2
    assert page.tags.count("strong") == 1
    assert "seed 2: out of memory" in html(TABLE)


@pytest.mark.parametrize(
    ("seeds", "n", "missing"),
    [
        ((0, 1, 2), 2, "incomplete: 1 of 3 seeds is missing"),
        ((0, 1, 2), 0, "incomplete: 3 of 3 seeds are missing"),
        ((0,), 0, "incomplete: 1 of 1 seed is missing"),
    ],
)
def test_an_incomplete_cell_states_what_is_missing(seeds: tuple[int, ...], n: int, missing: str) -> None:
    cell = Cell(Summary(1.0, None, n) if n else None, state="incomplete")
    table = replace(
        TABLE,
        provenance=replace(PROVENANCE, seeds=seeds),
        columns=(Column("x"),),
        groups=((Row(("m", "b"), (cell,)),),),
    )
    assert Cells(html(table)).titles == [missing]
    assert Cells(html(replace(table, over_seeds=False))).titles == ["incomplete: runs are missing"]


def test_a_value_that_is_not_finite_is_sorted_as_none() -> None:
    row = Row(("m", "b"), (Cell(Summary(float("nan"), None, 3)),))
    table = replace(TABLE, columns=(Column("x"),), groups=((row,),))
    assert Cells(html(table)).values == [None, ""]


def test_a_row_that_is_not_over_seeds_shows_the_state_of_its_runs_once() -> None:
    columns = (Column("n pairs", "none", 0), Column("Difference", "none"))
    for reason, words, signs in (("", "9 incomplete", "9 …"), ("why", "9 failed [1]", "9 failed[1]")):
        cell = Cell(Summary(9, None, 9), state="failed" if reason else "incomplete", reason=reason)
        table = replace(TABLE, columns=columns, groups=((Row(("m", "b"), (cell, cell)),),), over_seeds=False)
        assert f"| m | b | {words} | 9.0 |" in markdown(table)
        assert Cells(html(table)).rows[1] == ["m", "b", signs, "9.0"]
        lines = csv.DictReader(io.StringIO(as_csv(table)))
        assert {(line["state"], line["n"]) for line in lines} == {(cell.state, "9")}


def test_nothing_escapes_its_format() -> None:
    table = hostile_table()
    page = Cells(html(table))
    assert "script" not in page.tags
    assert page.rows[1][0] == HOSTILE
    assert next(csv.DictReader(io.StringIO(as_csv(table))))[HOSTILE] == HOSTILE
    lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}
    assert "<" not in markdown(table).replace("\\<", "")
