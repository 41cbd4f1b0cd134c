"""A table with every kind of cell, and one with hostile texts."""

from dataclasses import replace

from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Provenance, Published, Row, Table

HOSTILE = r"""<script>alert("1")</script> & 5% of #1 a_b {x} $y$ \z ~ ^ | * [q] `k`"""
PROVENANCE = Provenance(
    data="PACS (version 1)",
    protocol="messi; steps 300",
    selection="source_val",
    target_part="all",
    seeds=(0, 1, 2),
    version="0.1.0 (abc1234)",
)
ERM = Row(
    ("ERM", "DeiT-S/16"),
    (
        Cell(Summary(86.04, 0.31, 3), Published(86.2, 0.1)),
        Cell(Summary(1.26, 0.2, 2), None, "failed", "seed 2: out of memory"),
    ),
)
MESSI = Row(
    ("MESSI", "DeiT-S/16"),
    (Cell(Summary(90.46, None, 1), Published(90.9), "incomplete"), Cell(None, Published(-0.2, 0.3), "incomplete")),
    highlight=True,
)
OMOE = Row(("OMoE", "DeiT-S/16"), (Cell(Summary(87.31, 0.4, 3)), Cell(Summary(1.31, 0.3, 3))))
GMOE = Row(("GMoE", "DeiT-S/16"), (Cell(), Cell(Summary(1.34, 0.1, 3))))
TABLE = Table(
    name="main",
    title="Results",
    provenance=PROVENANCE,
    heads=("Method", "Backbone"),
    columns=(Column("PACS"), Column("Disc.", "down")),
    groups=((ERM, GMOE, OMOE), (MESSI,)),
)


def hostile_table() -> Table:
    row = Row((HOSTILE, HOSTILE), (Cell(None, None, "failed", HOSTILE), Cell(Summary(1, None, 3))))
    return replace(
        TABLE,
        title=HOSTILE,
        heads=(HOSTILE, "B"),
        columns=(Column(HOSTILE), Column("b")),
        groups=((row,),),
        provenance=replace(PROVENANCE, data=HOSTILE),
    )
