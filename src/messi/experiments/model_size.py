"""Number of parameters of the paper's models; nothing is trained.

Claim: MESSI-S is smaller than GMoE on the same backbone, and MESSI-Ti has less than a third of the size of a ResNet-50.
Command: messi reproduce model_size
Cost: seconds.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from messi.algorithms.common.base import AlgorithmConfig, build
from messi.core.batch import Task
from messi.core.info import version
from messi.experiments.common.base import Experiment
from messi.experiments.common.methods import DEIT_TI, RESNET_50, ROWS, backbone_title
from messi.experiments.common.paper_numbers import MODEL_SIZE
from messi.models.encoder import EncoderConfig
from messi.reports.plan_page import Section
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Provenance, Row, Table
from messi.studies.common.results import Results
from messi.sweeps.plan import PlannedRun

# SAGM only changes training and adds no parameters. MESSI's size does not depend on its discrepancy.
COUNTED = {
    **{name: ROWS[name] for name in ("ERM", "SAGM", "LFME", "GMoE", "GMoE+SAGM", "OMoE", "DynMoE")},
    "MESSI-S": ROWS["MESSI-S-OT"],
    "MESSI-Ti": ROWS["MESSI-Ti-OT"],
}
COLUMNS = tuple(Column(name, "none", 2) for name in ("Enc.", "MoE/Head", "Total"))
_IMAGE = (3, 224, 224)


@dataclass(frozen=True)
class Size:
    """Numbers of parameters, without the classifier."""

    encoder: int
    head: int
    """What a method adds to the encoder for prediction: experts and router."""

    @property
    def total(self) -> int:
        """Encoder and head."""
        return self.encoder + self.head


def count(method: AlgorithmConfig, backbone: str) -> Size:
    """Count the parameters used for prediction, without those of the classifier."""
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    # With no domains, LFME has no experts, which only training needs. The classifier of one class is subtracted.
    task = Task(input_shape=_IMAGE, num_classes=1, num_domains=0)
    with torch.device("meta"):
        plain = encoder.build(_IMAGE)
        whole = build(method, task=task, encoder=encoder)
    return Size(_parameters(plain), _parameters(whole) - _parameters(plain) - (plain.width + 1))


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True, kw_only=True)
class ModelSize(Experiment):
    """Encoder, head and total in millions."""

    title: ClassVar[str] = "Model sizes"
    claim: ClassVar[str] = "MESSI-S has 28.79 million parameters, GMoE 33.80 million and MESSI-Ti 7.48 million."
    cost: ClassVar[str] = "seconds; nothing is trained"
    reduced: ClassVar[str] = ""

    def runs(self) -> list[PlannedRun]:
        """Return no runs: nothing is trained."""
        return []

    def report(self, results: Results) -> list[Section]:  # noqa: ARG002 (there are none)
        """Return the counts and the paper's."""
        explanation = (
            "Millions of parameters used for prediction, without the classifier, counted from the networks; nothing is "
            f"trained. {_remark()}"
        )
        return [
            Table(
                name="model_size",
                title="Model sizes",
                explanation=explanation,
                provenance=Provenance(version=version()),
                heads=("Method", "Backbone"),
                columns=COLUMNS,
                groups=(tuple(_row(name, row.algorithm, row.backbone) for name, row in COUNTED.items()),),
                over_seeds=False,
            )
        ]


def _row(name: str, method: AlgorithmConfig, backbone: str) -> Row:
    size = count(method, backbone)
    paper = MODEL_SIZE.get((name, backbone_title(backbone)), {})
    cells = (
        Cell(Summary(number / 1e6, None, 1), paper.get(column.name))
        for number, column in zip((size.encoder, size.head, size.total), COLUMNS, strict=True)
    )
    return Row((name, backbone_title(backbone)), tuple(cells), name.startswith("MESSI"))


def _remark() -> str:
    """Explain the differences to the paper."""
    sizes = []
    for backbone in (RESNET_50, DEIT_TI):
        with torch.device("meta"):
            plain = EncoderConfig(backbone=backbone, pretrained=False).build(_IMAGE)
        with_classes = _parameters(plain) + 1000 * (plain.width + 1)
        sizes.append(f"{backbone_title(backbone)} has {with_classes / 1e6:.2f}")
    return (
        f"With a classifier for ImageNet's 1,000 classes, {' and '.join(sizes)} million: the paper seems to have "
        "counted it for these, but not for DeiT-S/16. DynMoE has room for eight experts in a block and starts with "
        "six."
    )
