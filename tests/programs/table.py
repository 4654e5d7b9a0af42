"""Which programs there are: each is a file in a folder here, and the folder is a section of the page."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

#: Folders in the page's order, and their titles there.
SECTIONS = {
    "ddp": "DistributedDataParallel and what goes with it",
    "sharded": "Sharded, tensor parallel and pipelined",
    "operations": "Operations",
    "groups": "Groups and meshes",
    "state": "Checkpoints and data",
    "launch": "Launchers",
    "whole": "Whole programs",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A program.

    Attributes:
      name: `section.file`.
      title: the first line of the file.
      ranks: how many it takes.
      agents: of torchrun, that share the ranks; 0: ranks are forked, and `program(rank, size)` gives a step.
      options: of torchrun.
      why: the reason for what the row shows, where that is not "works" on both within 1.1 times Gloo's time.
    """

    name: str
    title: str
    ranks: int
    agents: int
    options: Sequence[str]
    why: str

    @property
    def section(self) -> str:
        return self.name.split(".")[0]

    @property
    def path(self) -> Path:
        return HERE / f"{self.name.replace('.', '/')}.py"


def rows() -> list[Row]:
    """All programs, by section and name. Files are read, not imported, which would load all of torch."""
    paths = [path for section in SECTIONS for path in sorted((HERE / section).glob("*.py"))]
    return [_row(path) for path in paths]


def _row(path: Path) -> Row:
    tree = ast.parse(path.read_text())
    said: dict[str, Any] = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in ("RANKS", "AGENTS", "OPTIONS", "WHY")
    }
    name, title = f"{path.parent.name}.{path.stem}", (ast.get_docstring(tree) or "").splitlines()[0]
    values = (said.get("RANKS", 2), said.get("AGENTS", 0), said.get("OPTIONS", ()), said.get("WHY", ""))
    return Row(name, title.removesuffix("."), *values)
