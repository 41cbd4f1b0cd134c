import subprocess
import sys

import messi


def test_importing_messi_does_not_import_torch() -> None:
    code = "import sys, messi; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    assert {name: getattr(messi, name).__name__ for name in messi.__all__} == {name: name for name in messi.__all__}


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(messi, "sinkhorn_of_no_kind")
