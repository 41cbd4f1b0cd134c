"""Imports go down the list of rooms, never up, and never between siblings."""

import ast
from pathlib import Path

import messi

ROOMS = (
    {"cli"},
    {"api", "estimator"},
    {"experiments"},
    {"studies", "serving"},
    {"reports", "sweeps"},
    {"engine"},
    {"evaluation", "diagnostics"},
    {"algorithms"},
    {"data", "models", "losses"},
    {"discrepancy"},
    {"core"},
)
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
ROOT = Path(messi.__file__).parent


def imported_rooms(file: Path) -> set[str]:
    modules = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.append(node.module)
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    assert "messi" not in modules, f"{file}: import from the room itself, not from the package"
    return {module.split(".")[1] for module in modules if module.startswith("messi.")}


def violations(file: Path) -> list[str]:
    room = file.relative_to(ROOT).parts[0]
    wrong = [other for other in imported_rooms(file) if other != room and LEVEL[other] <= LEVEL[room]]
    return [f"{file.relative_to(ROOT)} imports {other}" for other in wrong]


def test_every_import_goes_down() -> None:
    files = [file for file in ROOT.rglob("*.py") if file.parent != ROOT]
    assert len(files) > 40
    assert [line for file in files for line in violations(file)] == []


def test_every_room_has_a_level() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= LEVEL.keys()
