"""The public names: those of the stub, imported when they are used."""

import importlib
import importlib.metadata
import subprocess
import sys
import tempfile

import messi


def test_importing_messi_does_not_import_torch() -> None:
    code = "import sys, messi; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_features_need_neither_timm_nor_torchvision() -> None:
    """Importing timm, or torchvision, takes as long as importing torch."""
    code = """if True:
        import sys, messi
        data = messi.TwoSubsets()
        config = messi.RunConfig(data=data, target=("b2",), training=messi.TrainingConfig(steps=2))
        result = messi.run(config, out=sys.argv[1], device="cpu")
        messi.load(result.path)
        messi.DomainClassifier(steps=2).fit([[0.0], [1.0]] * 9, [0, 1] * 9, domains=[0, 0, 1, 1, 2, 2] * 3)
        sys.exit(bool({"timm", "torchvision"} & set(sys.modules)))
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = subprocess.run([sys.executable, "-c", code, f"{folder}/run"], check=False, capture_output=True)
    assert answer.returncode == 0, answer.stderr


def test_every_name_of_the_stub_can_be_imported_and_is_listed_once() -> None:
    for name in messi.__all__:
        module = importlib.import_module(messi._MODULES[name])  # type: ignore[attr-defined]
        assert getattr(messi, name) is vars(module)[name]
    assert set(dir(messi)) == set(messi.__all__)
    assert {"run", "load", "RunConfig", "Algorithm", "Batch", "LossTerms", "Bounds", "OneOf"} <= set(messi.__all__)


def test_the_version_is_that_of_the_distribution() -> None:
    assert messi.__version__ == importlib.metadata.version("messi-dg")


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(messi, "sinkhorn_of_no_kind")
