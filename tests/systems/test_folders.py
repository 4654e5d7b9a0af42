"""A system is a folder: what its experiment may use, and what it may not bring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tweed.systems import SYSTEMS
from tweed.systems.__main__ import KINDS

FOLDER = Path(__file__).parents[2] / "python/tweed/systems"
every_system = pytest.mark.parametrize("name", SYSTEMS)
#: What only a part of a stage has. Names that other things have too say nothing.
MARKS = {mark for *_, mark in KINDS} - {"rank", "advance", "require"}
#: It does what a codec does, and counts.
MEASURES = {"Counted"}


def imports(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Modules, and the names that are taken from each."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, {alias.name for alias in node.names}


def test_a_row_is_a_folder() -> None:
    assert {path.parent.name for path in FOLDER.glob("*/__init__.py")} == {*SYSTEMS, "harness"}


@every_system
def test_an_experiment_does_not_depend_on_how_its_figures_are_shown(name: str) -> None:
    report = f"tweed.systems.{name}.report"
    for path in (FOLDER / name).glob("*.py"):
        if not path.stem.startswith("report"):
            taken = [names for module, names in imports(path) if module.startswith(report)]
            assert taken == ([{"study"}] if path.stem == "__init__" else []), path
            assert not any(
                module == f"tweed.systems.{name}" and "report" in names for module, names in imports(path)
            )


@every_system
def test_a_system_uses_no_other_system(name: str) -> None:
    mine = ("tweed.systems.harness", f"tweed.systems.{name}")
    for path in (FOLDER / name).glob("*.py"):
        used = [module for module, _ in imports(path) if module.startswith("tweed.systems.")]
        assert [module for module in used if not module.startswith(mine)] == [], path


@pytest.mark.parametrize("name", [*SYSTEMS, "harness"])
def test_a_system_brings_no_machinery(name: str) -> None:
    for path in (FOLDER / name).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name not in MEASURES:
                has = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                assert not has & MARKS, f"{path.name}: {node.name} is a part of a stage, and belongs there"
