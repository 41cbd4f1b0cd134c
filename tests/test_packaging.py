"""pyproject.toml declares what the package imports, and the citation file has the same version."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {"PIL": "pillow", "huggingface_hub": "huggingface-hub", "markdown_it": "markdown-it-py"}
DISTRIBUTIONS |= {"python_multipart": "python-multipart", "sklearn": "scikit-learn"}
OPTIONAL = {"triton"}  # comes with torch where there are GPUs
NOT_IMPORTED = {"tensorboard"}  # torch.utils.tensorboard imports it


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_the_declared_dependencies_are_those_that_are_imported() -> None:
    names = {name.split(".")[0] for path in (ROOT / "src").rglob("*.py") for name in imported(path)}
    extras = PROJECT["optional-dependencies"]
    used_by_messi = {_name(one) for extra in extras.keys() - {"dev", "docs"} for one in extras[extra]}
    names -= {"messi", *sys.stdlib_module_names, *OPTIONAL}
    declared = {_name(requirement) for requirement in PROJECT["dependencies"]}
    assert ({DISTRIBUTIONS.get(name, name) for name in names} - used_by_messi) | NOT_IMPORTED == declared


def _name(requirement: str) -> str:
    return re.split(r"[<>=\[]", requirement)[0]


def test_the_citation_names_the_version() -> None:
    assert f"version: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()
