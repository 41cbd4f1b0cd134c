"""What ``import messi`` offers: a run from Python, and the names that a user's own method needs."""

import inspect
from pathlib import Path

import pytest

import messi
from messi.algorithms.common.base import ALGORITHMS
from messi.core.records import TrainRecord
from messi.core.rundir import RunDir
from messi.engine import run as engine
from messi.engine.config import RunConfig


def test_a_run_from_python_writes_the_same_folder_as_the_command(tmp_path: Path, quick_config: RunConfig) -> None:
    result = messi.run(quick_config, out=tmp_path / "run", device="cpu")
    report = result.path / "report.html"
    assert "b2" in report.read_text()
    report.unlink()
    again = messi.run(quick_config, out=tmp_path / "run", device="cpu")
    assert (again.fresh, report.exists()) == (False, True)
    before = report.stat().st_mtime_ns
    messi.run(quick_config, out=tmp_path / "run", device="cpu")
    assert report.stat().st_mtime_ns == before


def test_the_public_run_has_the_parameters_of_the_engine() -> None:
    """Except for the processes, which it joins itself."""
    public, own = (inspect.signature(one) for one in (messi.run, engine.run))
    expected = [parameter for name, parameter in own.parameters.items() if name != "processes"]
    assert public == own.replace(parameters=expected)


OWN = """
import messi

class Own(messi.ERM):
    class Config(messi.ERM.Config):
        pass

    def loss(self, batch: messi.Batch) -> messi.LossTerms:
        features = self.encoder(batch.inputs)
        logits = self.classifier(features)
        return {
            "cls": messi.domain_mean_cross_entropy(logits, batch.labels, batch.domains),
            "norm": 0.1 * features.square().mean(),
        }
"""


@pytest.mark.parametrize("line", ["import messi", "from messi import ERM, Batch, LossTerms, domain_mean_cross_entropy"])
def test_a_method_with_a_single_import_line_trains(line: str, tmp_path: Path, quick_config: RunConfig) -> None:
    text = OWN.replace("import messi", line)
    (tmp_path / "own.py").write_text(text if line == "import messi" else text.replace("messi.", ""))
    config = messi.RunConfig(
        data=quick_config.data,
        target=quick_config.target,
        algorithm=ALGORITHMS.config(str(tmp_path / "own.py"))(),
        training=quick_config.training,
    )
    result = messi.run(config, out=tmp_path / "run", device="cpu")
    records = [record for record in RunDir(result.path).read_records() if isinstance(record, TrainRecord)]
    assert records[-1].terms.keys() == {"cls", "norm"}
