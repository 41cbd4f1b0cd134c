"""messi: train on a few domains, work on an unseen one.

    import messi

    config = messi.RunConfig(data=messi.RotatedColoredMNIST(), target=("rot0-p0.5",))
    result = messi.run(config)
    answers = messi.load(result.path).predict(images)

The public names are those in ``__init__.pyi``, which type checkers and editors read. Each is imported when it is first
used, so ``import messi`` is fast and does not import torch.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8"))
_MODULES = {
    alias.name: str(node.module) for node in _STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names
}
__all__ = sorted(_MODULES)  # noqa: PLE0605 (a list, computed)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("messi.core.info").version()
    if name not in _MODULES:
        raise AttributeError(f"module 'messi' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
