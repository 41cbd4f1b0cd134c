"""Objective ablation on PACS: MESSI without each of its terms, and what that does to routing and experts.

Claim: every term is needed. Without L_ssi accuracy falls most, without L_sp routing is diffuse, without L_div the
experts are alike.
Command: messi reproduce leave_one_out --weights FOLDER
Cost: 72 runs of 5,000 steps; 1,000 steps of MESSI-S-OT take 9.4 s on an H200 (benchmarks/bench_train_gpu.py).
With --scale small --jobs 2 it took 95 s on 2 CPU cores.
"""

from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms.messi import MESSI
from messi.core.rundir import RunDir
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.base import Section
from messi.experiments.common.diagnostics import diagnostic
from messi.experiments.common.methods import MESSI_OT
from messi.experiments.common.results import Results, Value, target_accuracy
from messi.experiments.paper.ablations import LEAVE_ONE_OUT
from messi.reports.paper_tables import Column, Row, Table
from messi.sweeps.plan import Planned

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
    "Routing Ent. (1e-2)": diagnostic("routing", "entropy", unit=1e-2),
    "Load Std. (1e-1)": diagnostic("routing", "load_std", unit=1e-1),
    "Offdiag Cos. (1e-2)": diagnostic("similarity", "mean_off_diagonal", unit=1e-2),
    "Routing JS (1e-4)": diagnostic("routing", "template_divergence", unit=1e-4),
}


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(Ablation):
    """Accuracy, and what each term is there for, without each term."""

    title: ClassVar[str] = "Objective leave-one-out ablation"
    claim: ClassVar[str] = (
        "Without L_ssi accuracy falls by four points; without L_sp routing entropy rises from 0.007 to 0.53; without "
        "L_div the cosine between experts rises from 0 to 0.36."
    )
    compared_with: ClassVar[str] = "MESSI"
    cost: ClassVar[str] = "72 runs of 5,000 steps; 1,000 steps of MESSI-S-OT take 9.4 s on an H200"

    def runs(self) -> list[Planned]:
        """Return a run for every seed, target and variant."""
        return self.planned(VARIANTS, self.benchmark("pacs"))

    def sections(self, results: Results) -> list[Section]:
        """Return the table, and the differences to MESSI with all of its terms."""
        diagnosed = results.readable(RunDir.read_diagnostics)
        accuracy = Column(f"{self.benchmark('pacs').title} Acc.", digits=2)
        explanation = (
            "Accuracy on the target in percent, and diagnostics on the held-out part "
            "of the source domains, in units of the power of ten in their heads: entropy of the routing in nats, "
            "deviation of the experts' loads, mean cosine of two experts' outputs, and Jensen-Shannon divergence in "
            "nats between a domain's routing of a class and the mean over domains"
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
