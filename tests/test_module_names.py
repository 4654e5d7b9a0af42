"""Every text that names a module of ours leads to one: no import checks these, and some fail in silence."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = ("python", "tests", "bench", "tools", "examples", "fuzz")
OURS = r"(?:tweed|tests|bench|tools|fuzz)"
#: A whole text such as "tweed.torch.backend" or "tweed.torch:register".
WHOLE = re.compile(rf"{OURS}(?:\.\w+)+(?::\w+)?")
#: What is run or shown: `python -m tests.docstrings`, `::: tweed.attach`.
WITHIN = re.compile(rf"(?:-m |::: )({OURS}(?:\.\w+)+)")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
OTHER_FILES = [ROOT / name for name in ("Makefile", ".ci/run", "mkdocs.yml", "pyproject.toml")]


@cache
def leads_somewhere(name: str) -> bool:
    """Whether `name` is a module, or begins with one and a name in it: "a.b.c", "a.b:c".

    Nothing is imported: that takes seconds.
    """
    parts = name.replace(":", ".").split(".")
    path = (ROOT / "python" if parts[0] == "tweed" else ROOT).joinpath(*parts)
    if path.is_dir() or _source(path) is not None:
        return True
    for inner, outer in pairwise([path, *path.parents][: len(parts)]):
        if (source := _source(outer)) is not None:
            return _has(source, inner.name)
    return False


def _source(path: Path) -> Path | None:
    places = (path.with_suffix(".py"), path / "__init__.py", path.with_suffix(".pyi"))
    return next((place for place in places if place.exists()), None)


def _has(source: Path, name: str) -> bool:
    """Whether a module defines, imports or exports `name`."""
    for node in ast.walk(ast.parse(source.read_text())):
        match node:
            case ast.FunctionDef(name=found) | ast.ClassDef(name=found) | ast.Name(id=found) if found == name:
                return True
            case ast.Constant(value=found) if found == name:
                return True
            case ast.alias() if name in (node.name, node.asname):
                return True
    return False


def _texts(path: Path) -> Iterator[str]:
    """Texts in the code, those within f-strings apart."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    formatted = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in formatted:
            yield node.value


@pytest.mark.parametrize("folder", CODE)
def test_texts_that_name_modules(folder: str) -> None:
    found = {
        (path, name)
        for path in (ROOT / folder).rglob("*.py")
        for text in _texts(path)
        for name in ([text] if WHOLE.fullmatch(text) else WITHIN.findall(text))
    }
    wrong = (one for one in found if not leads_somewhere(one[1]) and not one[1].endswith(".nothing"))
    missed = sorted(f"{path.relative_to(ROOT)}: {name}" for path, name in wrong)
    assert missed == []


@pytest.mark.parametrize("path", [*PAGES, *OTHER_FILES], ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_pages_and_commands_name(path: Path) -> None:
    assert [name for name in WITHIN.findall(path.read_text()) if not leads_somewhere(name)] == []


def _project() -> dict[str, dict[str, dict[str, object]]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def test_entry_points_lead_somewhere() -> None:
    project = _project()["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    names = [name for group in groups for name in group.values()]  # type: ignore[attr-defined]
    assert names
    assert [name for name in names if not leads_somewhere(str(name))] == []


def test_lists_of_files_name_files_that_are_there() -> None:
    ruff = _project()["tool"]["ruff"]["lint"]["per-file-ignores"]  # type: ignore[index]
    assert [one for pattern in ruff for one in _without_braces(pattern) if not any(ROOT.glob(one))] == []


def _without_braces(pattern: str) -> list[str]:
    """The patterns that "a/{b,c}.py" stands for."""
    before, brace, rest = pattern.partition("{")
    inner, _, after = rest.partition("}")
    return [f"{before}{one}{after}" for one in inner.split(",")] if brace else [pattern]


def test_lazy_names_and_folders_are_there() -> None:
    import tweed

    missed = [name for name, module in tweed._LAZY.items() if not leads_somewhere(f"{module}.{name}")]
    assert missed + [folder for folder in tweed._FOLDERS if not leads_somewhere(f"tweed.{folder}")] == []


#: A line of a page's code block that imports from us.
_IMPORT = re.compile(
    rf"^ *((?:from {OURS}[.\w]* import [\w, ]+|import {OURS}[.\w]*)(?: as \w+)?)", re.MULTILINE
)


def _imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """Modules, and names in them, that a page or an example imports from us."""
    text = path.read_text()
    code = text if path.suffix == ".py" else "\n".join(_IMPORT.findall(text))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((one.name, None) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, one.name) for one in node.names)


_SHOWN = sorted(
    {
        one
        for path in [*PAGES, *ROOT.glob("examples/**/*.py")]
        for one in _imports(path)
        if re.match(rf"{OURS}\b", one[0])
    },
    key=str,
)


@pytest.mark.parametrize(("module", "name"), _SHOWN)
def test_imports_that_pages_and_examples_show(module: str, name: str | None) -> None:
    assert leads_somewhere(module if name is None else f"{module}.{name}")
