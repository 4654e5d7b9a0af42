"""What is wrong with docstrings that no linter knows: `python -m tests.docstrings [FOLDER]` lists it."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parents[1] / "python/tweed"
Function = ast.FunctionDef | ast.AsyncFunctionDef
#: A docstring is a sentence that is understood without the name beside it.
FRAGMENT = re.compile(r"(Of|By|That|Those|The same)\b")
FEWEST_WORDS = 4


class Fault(NamedTuple):
    """A docstring that says too little, or is missing."""

    place: str
    name: str
    why: str


def faults(folder: str = "") -> Iterator[Fault]:
    """All of them in python/tweed, or in one folder or file of it."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCES.rglob("*.py"))}
    described, ours = _described(trees), {name for tree in trees.values() for name, *_ in _named(tree)}
    for path, tree in trees.items():
        place = str(path.relative_to(SOURCES))
        if place.startswith(folder):
            for name, node, owner in _named(tree):
                others = (
                    {ast.unparse(base).partition("[")[0] for base in owner.bases} - ours if owner else set()
                )
                if why := _why(
                    node, owner, described[_stage(path)], bool(others - {"Protocol", "NamedTuple"})
                ):
                    yield Fault(f"{place}:{node.lineno}", name, why)


def _stage(path: Path) -> str:
    return path.relative_to(SOURCES).parts[0]


def _described(trees: dict[Path, ast.Module]) -> dict[str, dict[str, set[str]]]:
    """By folder and method, the classes of that folder that say what it does."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, tree in trees.items():
        for name, node, owner in _named(tree):
            if owner is not None and ast.get_docstring(node):
                found[_stage(path)][name.rpartition(".")[2]].add(owner.name)
    return found


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.ClassDef | Function, ast.ClassDef | None]]:
    """Classes, functions and methods, with the class that a method is of."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function):
            yield node.name, node, None
        for inner in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(inner, ast.ClassDef | Function):
                yield f"{node.name}.{inner.name}", inner, node


def _why(
    node: ast.ClassDef | Function, owner: ast.ClassDef | None, described: dict[str, set[str]], is_other: bool
) -> str | None:
    """What is wrong with a docstring; None: nothing.

    Args:
      described: by method, the classes of the folder that say what it does.
      is_other: the method's class is one of another package, which says what its methods do.
    """
    text = ast.get_docstring(node)
    if text is None:
        private = node.name.startswith("_") or (owner is not None and owner.name.startswith("_"))
        elsewhere = owner is not None and bool(described[node.name] - {owner.name})
        return None if private or elsewhere or is_other or _trivial(node) else "has none"
    if FRAGMENT.match(text):
        return f"begins with {text.split()[0]!r}"
    if text.startswith("See ") and "\n" not in text:
        return "says only where to look"
    return "has too few words" if len(text.split()) < FEWEST_WORDS else None


def _trivial(node: ast.ClassDef | Function) -> bool:
    """A property that returns what its name says, and an overload."""
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
    if marks & {"overload", "setter"}:
        return True
    return bool(marks & {"property", "cached_property"}) and len(node.body) == 1


if __name__ == "__main__":
    found = list(faults(*sys.argv[1:]))
    for fault in found:
        print(f"{fault.place}: {fault.name} {fault.why}")
    print(f"{len(found)} docstrings")
