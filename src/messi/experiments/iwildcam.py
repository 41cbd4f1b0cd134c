"""WILDS-iWildCam: macro F1 and accuracy on camera traps used for training, and on others.

Claim: MESSI reaches the highest macro F1 on all four evaluation splits.
Command: messi reproduce iwildcam --path FOLDER (metadata.csv and train/) --weights FOLDER
Cost: 9 runs of 150,000 steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.gmoe import GMoE
from messi.algorithms.messi import MESSI
from messi.algorithms.omoe import OMoE
from messi.core.records import Role
from messi.data.datasets.iwildcam import IWildCam as IWildCamData
from messi.data.disk import data_home
from messi.engine.config import RunConfig, TrainingConfig
from messi.experiments.common.base import Experiment
from messi.experiments.common.methods import DEIT_S, backbone_title, pretrained
from messi.experiments.common.paper_numbers import IWILDCAM
from messi.losses.ssi.loss import Discrepancy
from messi.models.encoder import EncoderConfig
from messi.reports.plan_page import Section
from messi.reports.table import Column, Row, Table
from messi.studies.common.results import Results
from messi.sweeps.plan import Outcome, PlannedRun

SPLITS: dict[str, Role] = {
    "OOD Val": "unseen_val",
    "OOD Test": "target",
    "ID Val": "source_val",
    "ID Test": "source_test",
}
METHODS = ("OMoE", "GMoE", "MESSI")
CAMERAS, SMALL_BACKBONE = 4, "test_vit"


@dataclass(frozen=True, kw_only=True)
class IWildCam(Experiment):
    """The official splits of WILDS."""

    title: ClassVar[str] = "WILDS-iWildCam"
    claim: ClassVar[str] = "MESSI reaches a macro F1 of 33.16 on unseen cameras, OMoE 27.96 and GMoE 26.68."
    cost: ClassVar[str] = "9 runs of 150,000 steps"
    reduced: ClassVar[str] = (
        "the first 4 cameras of each official part, a tiny vision transformer without pretrained weights, 60 steps, "
        "one seed; the data must already be on this machine"
    )

    path: str | None = None
    """Folder with metadata.csv and train/; by default in $MESSI_HOME/data, downloaded if missing."""
    weights: str | None = None
    """Folder with deit_small_patch16_224.safetensors or .pth; by default it is downloaded."""
    discrepancy: Discrepancy = "ot"
    """MESSI's discrepancy; the paper does not state which one it used here."""

    def runs(self) -> list[PlannedRun]:
        """Return a run for every method and seed."""
        return [
            PlannedRun({"method": method, "seed": seed}, self._config(method, seed))
            for seed in self.all_seeds()
            for method in METHODS
        ]

    def report(self, results: Results) -> list[Section]:
        """Return macro F1, as in the paper, and accuracy."""
        names = [f"{split} {what}" for what in ("F1", "acc.") for split in SPLITS]
        explanation = (
            "Macro F1 over the classes that occur in a split, and accuracy, in percent, with "
            f"{backbone_title(self._backbone)}; MESSI with {self.discrepancy.upper()}. The step is selected by macro "
            "F1 on OOD Val, as in WILDS; the paper names the split, not the score"
        )
        data = f"iWildCam (WILDS v2.0), {f'first {CAMERAS} cameras of each part' if self.small else 'official parts'}"
        return [
            Table(
                name="iwildcam",
                title="Macro F1 and accuracy on iWildCam",
                explanation=explanation,
                provenance=results.provenance(data=data, reduced=self.reduced if self.small else ""),
                heads=("Method",),
                columns=tuple(Column(name, digits=2) for name in names),
                groups=(tuple(self._row(results, method) for method in METHODS),),
            )
        ]

    def _row(self, results: Results, method: str) -> Row:
        paper = {} if self.small else IWILDCAM[method]
        cells = [
            results.cell(paper.get(split) if metric == "macro_f1" else None, in_role(role, metric), method=method)
            for metric in ("macro_f1", "accuracy")
            for split, role in SPLITS.items()
        ]
        return Row((method,), tuple(cells), method == "MESSI")

    @property
    def _backbone(self) -> str:
        return SMALL_BACKBONE if self.small else DEIT_S

    def _config(self, method: str, seed: int) -> RunConfig:
        small = TrainingConfig(steps=60, evaluate_every=30)
        return RunConfig(
            data=self._data(),
            algorithm=self._methods[method],
            encoder=self._encoder(),
            training=small if self.small else TrainingConfig(),
            seed=seed,
        )

    @property
    def _methods(self) -> dict[str, AlgorithmConfig]:
        return {"OMoE": OMoE.Config(), "GMoE": GMoE.Config(), "MESSI": MESSI.Config(discrepancy=self.discrepancy)}

    def _data(self) -> IWildCamData:
        if not self.small:
            return IWildCamData(path=self.path)
        # A named folder without the data is an error, so that a trial does not download 12 GB.
        folder = self.path or str(data_home() / IWildCamData().manifest.folder)
        return IWildCamData(path=folder, cameras=CAMERAS)

    def _encoder(self) -> EncoderConfig:
        if self.small:
            return EncoderConfig(backbone=SMALL_BACKBONE, pretrained=False)
        return pretrained(DEIT_S, self.weights)


def in_role(role: Role, metric: str) -> Callable[[Outcome], float]:
    """Return a function that reads a metric over all examples in a role from a run, in percent."""
    return lambda outcome: 100 * float(getattr(outcome.result().roles[role], metric))
