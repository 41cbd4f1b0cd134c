"""Which experts the routers of GMoE and MESSI choose for every domain of PACS and every class in it.

Claim: MESSI's routing is sharper than GMoE's and depends more on the class.
Command: messi reproduce routing --weights FOLDER
Cost: 4 runs of 5,000 steps.
With --scale small --jobs 2 it took 30 s on 2 CPU cores.

The paper draws P(e|d=k), P_k(e|y) and P(e|d=k,y) for every domain k. By its definition the latter two are equal, so one
figure per domain shows everything: P(e|d=k) in the first row and P(e|d=k,y) in the rows below. Routing is measured on
the validation part of a source domain, so a domain is shown from a run with another target.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.gmoe import GMoE
from messi.core.errors import MessiError
from messi.core.records import Record, RoutingRecord
from messi.core.rundir import RunDir
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.benchmarks import Benchmark
from messi.experiments.common.methods import MESSI_OT
from messi.reports.charts import HeatGroup, HeatMap, HeatRow, heat_figure
from messi.reports.plan_page import Figure, Section, Text
from messi.studies.common.base import Repetitions
from messi.studies.common.results import Results
from messi.sweeps.plan import PlannedRun

METHODS: dict[str, AlgorithmConfig] = {"GMoE": GMoE.Config(), "MESSI": MESSI_OT}
Line = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Routing(Ablation):
    """Mean routing by domain and class."""

    title: ClassVar[str] = "Routing diagnostics on PACS"
    claim: ClassVar[str] = "MESSI's routing is sharper than GMoE's and is structured by class in every domain."
    cost: ClassVar[str] = "4 runs of 5,000 steps"
    reduced: ClassVar[str] = (
        f"{Ablation.reduced}; two of six domains are shown; GMoE, which needs a vision transformer, is left out"
    )

    seeds: Repetitions = 1
    """Number of repetitions; experts of different runs have no common order, so each seed has its own figures."""

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, method and two targets; every domain is a source domain of one of them."""
        return self.planned(self._methods, self._held_out)

    def report(self, results: Results) -> list[Section]:
        """Return a figure for every domain and seed."""
        pictures = [self._picture(results, domain, seed) for seed in self.all_seeds() for domain in self._domains]
        return [picture for picture in pictures if picture]

    @property
    def _methods(self) -> dict[str, AlgorithmConfig]:
        return {"MESSI": MESSI_OT} if self.small else METHODS

    @property
    def _domains(self) -> list[str]:
        return list(self.benchmark("pacs").targets)

    @property
    def _held_out(self) -> Benchmark:
        benchmark = self.benchmark("pacs")
        ends = (self._domains[0], self._domains[-1])
        return dataclasses.replace(benchmark, targets={domain: benchmark.targets[domain] for domain in ends})

    def _picture(self, results: Results, domain: str, seed: int) -> Section | None:
        """Draw the experts of all methods side by side; None if a run is not done, a text if its files are damaged."""
        target = self._domains[0] if domain == self._domains[-1] else self._domains[-1]
        outcomes = {m: results.where(method=m, target=target, seed=seed)[0] for m in self._methods}
        if any(outcome.state != "done" for outcome in outcomes.values()):
            return None
        folders = {method: RunDir(outcome.path) for method, outcome in outcomes.items()}
        classes = next(iter(folders.values())).read_description().classes
        name, file = self.benchmark("pacs").targets[domain], f"routing_{domain}_seed{seed}"
        try:
            found = {method: lines_of(folder.read_records(), domain, classes) for method, folder in folders.items()}
        except MessiError as error:
            return Text(file, f"{name}, seed {seed}: no figure, because a file is damaged. {error}")
        experts = " and ".join(f"{m} ({m[0]})" for m in found)
        how = self.provenance(Results(list(outcomes.values())))
        caption = (
            f"{name}, seed {seed}: mean routing to the experts of {experts} on the validation part of the domain. "
            f"First row: P(e|d); other rows: P(e|d,y), which equals P_k(e|y) by definition. Data: {how.data}. "
            f"Protocol: {how.protocol}. Version: {how.version}."
        )
        heat_map = side_by_side(f"{name}: routing to the experts of {experts}", found, ["all classes", *classes])
        return Figure(file, caption, heat_figure(heat_map))


def side_by_side(title: str, parts: Mapping[str, Sequence[Line]], names: Sequence[str]) -> HeatMap:
    """Join the lines of several methods, with the experts as columns."""
    columns = tuple(f"{method[0]}{number + 1}" for method, lines in parts.items() for number in range(len(lines[0])))
    rows = (
        HeatRow(name, tuple(value for lines in parts.values() for value in lines[place]))
        for place, name in enumerate(names)
    )
    return HeatMap(title, "class", columns, (HeatGroup(tuple(rows)),))


def lines_of(records: Sequence[Record], domain: str, classes: Sequence[str]) -> list[Line]:
    """Return the mean routing of a source domain, then that of each class; None for a class that it lacks."""
    routing = [r for r in records if isinstance(r, RoutingRecord) and (r.role, r.domain) == ("source_val", domain)]
    if not routing:
        raise MessiError(f"records.jsonl contains no routing of {domain}.")
    whole = np.average([r.experts for r in routing], axis=0, weights=[r.count for r in routing]).tolist()
    by_class = {r.label: r.experts for r in routing}
    return [whole, *(by_class.get(label, [None] * len(whole)) for label in classes)]
