"""The data sets of the paper's main table, with their targets in the paper's order and the paper's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from messi.data.datasets.common import benchmark
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.domain_net import DomainNet
from messi.data.datasets.office_home import OfficeHome
from messi.data.datasets.pacs import PACS
from messi.data.datasets.rotated_mnist import ANGLES, RotatedMNIST
from messi.data.datasets.terra_incognita import TerraIncognita
from messi.experiments.common import paper_numbers as paper
from messi.reports.table import Published

DataName = Literal["pacs", "office_home", "terra_incognita", "domain_net"]


@dataclass(frozen=True)
class Benchmark:
    """A data set of which every domain is the target once."""

    name: str
    title: str
    """As in the paper's main table."""
    data: DataConfig
    targets: Mapping[str, str]
    """The paper's name for every domain."""
    paper: Mapping[str, Mapping[str, Published]] = field(default_factory=dict)
    """By row, then by target."""

    def config(self, folder: str | None) -> DataConfig:
        """Return the data config; ``folder`` contains the folders of the data sets."""
        return in_folder(self.data, folder)


def in_folder(data: DataConfig, folder: str | None) -> DataConfig:
    """Return the config of a published data set whose folder is in ``folder``; any other data stay where they are."""
    if folder is None or not isinstance(data, benchmark.Benchmark):
        return data
    return type(data)(path=str(Path(folder) / data.manifest.folder))


BENCHMARKS: dict[DataName, Benchmark] = {
    "pacs": Benchmark(
        "pacs",
        "PACS",
        PACS(),
        {"art_painting": "Art", "cartoon": "Cartoon", "photo": "Photo", "sketch": "Sketch"},
        paper.PACS,
    ),
    "office_home": Benchmark(
        "office_home",
        "OfficeHome",
        OfficeHome(),
        {"Art": "Art", "Clipart": "Clipart", "Product": "Product", "Real World": "Real-World"},
        paper.OFFICE_HOME,
    ),
    "terra_incognita": Benchmark(
        "terra_incognita",
        "TerraInc",
        TerraIncognita(),
        {f"location_{number}": f"L{number}" for number in (100, 38, 43, 46)},
        paper.TERRA_INCOGNITA,
    ),
    "domain_net": Benchmark(
        "domain_net",
        "DomainNet",
        DomainNet(),
        {name: name.title() for name in ("real", "clipart", "painting", "sketch", "infograph", "quickdraw")},
        paper.DOMAIN_NET,
    ),
}
STAND_IN = Benchmark(
    "rotated_mnist", "Rotated MNIST", RotatedMNIST(), {str(angle): f"{angle} degrees" for angle in ANGLES}
)
"""The data of the small scale: not the paper's, but real digits that need no download."""
