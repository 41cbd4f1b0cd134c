"""Objective ablation on PACS: the effect of each loss term on accuracy, routing and experts.

Claim: every term is needed. Accuracy drops most without L_ssi, routing is diffuse without L_sp, and the experts are
similar without L_div.
Command: messi reproduce leave_one_out --weights FOLDER
Cost: 72 runs of 5,000 steps; 1,000 steps of MESSI-S-OT take 9.4 s on an H200 (benchmarks/bench_train_gpu.py).
With --scale small --jobs 2 it took 95 s on 2 CPU cores.
"""

from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms.messi import MESSI
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.methods import MESSI_OT
from messi.experiments.common.paper_numbers import LEAVE_ONE_OUT
from messi.reports.plan_page import Section
from messi.reports.table import Column, Row, Table
from messi.studies.common.results import Results, Value, diagnostic, target_accuracy
from messi.sweeps.plan import PlannedRun

VARIANTS = {
    "MESSI": MESSI_OT,
    "w/o L_ssi": MESSI.Config(ssi_weight=0.0),
    "w/o L_sp": MESSI.Config(sparsity_weight=0.0),
    "w/o L_bal": MESSI.Config(balance_weight=0.0),
    "w/o L_div": MESSI.Config(diversity_weight=0.0),
    "w/o L_sp,L_bal,L_div": MESSI.Config(sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0),
}
ACCURACY = "PACS Acc."
DIAGNOSTICS: dict[str, Value] = {
    "Routing Ent. (1e-2)": diagnostic("routing_entropy", unit=1e-2),
    "Load Std. (1e-1)": diagnostic("load_deviation", unit=1e-1),
    "Offdiag Cos. (1e-2)": diagnostic("expert_cosine", unit=1e-2),
    "Routing JS (1e-4)": diagnostic("template_divergence", unit=1e-4),
}


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(Ablation):
    """Accuracy, and the quantity that each term controls, without each term."""

    title: ClassVar[str] = "Objective leave-one-out ablation"
    claim: ClassVar[str] = (
        "Without L_ssi, accuracy drops by four points; without L_sp, routing entropy rises from 0.007 to 0.53; without "
        "L_div, the cosine between experts rises from 0 to 0.36."
    )
    compared_with: ClassVar[str] = "MESSI"
    cost: ClassVar[str] = "72 runs of 5,000 steps; 1,000 steps of MESSI-S-OT take 9.4 s on an H200"

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, target and variant."""
        return self.planned(VARIANTS, self.benchmark("pacs"))

    def report(self, results: Results) -> list[Section]:
        """Return the table, and the differences to MESSI with all terms."""
        diagnosed = results.diagnosed()
        accuracy = Column(f"{self.benchmark('pacs').title} Acc.", digits=2)
        explanation = (
            "Accuracy on the target in percent, and diagnostics on the validation part of the source domains, in "
            "units of the power of ten in their heads: entropy of the routing in nats, deviation of the experts' "
            "loads, mean cosine between two experts' outputs, and Jensen-Shannon divergence in nats between a "
            "domain's routing of a class and the mean over domains"
        )
        table = Table(
            name="leave_one_out",
            title="MESSI without some of its terms",
            explanation=explanation,
            provenance=self.provenance(results),
            heads=("Variant",),
            columns=(accuracy, *(Column(name, "down") for name in DIAGNOSTICS)),
            groups=(tuple(self._row(diagnosed, variant) for variant in VARIANTS),),
        )
        return [table, self.differences(results)]

    def _row(self, results: Results, variant: str) -> Row:
        paper = self.paper(LEAVE_ONE_OUT[variant])
        values = {ACCURACY: target_accuracy, **DIAGNOSTICS}
        cells = (results.cell(paper.get(name), value, method=variant) for name, value in values.items())
        return Row((variant,), tuple(cells), variant == "MESSI")
