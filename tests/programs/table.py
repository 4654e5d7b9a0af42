"""Which programs there are: each is a file in a folder of this one, and the folder is a section of the page."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

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

    def module(self) -> ModuleType:
        return importlib.import_module(f"tests.programs.{self.name}")

    @property
    def path(self) -> Path:
        return HERE / f"{self.name.replace('.', '/')}.py"


def rows() -> list[Row]:
    """All programs, by section and name."""
    return [_row(f"{section}.{path.stem}") for section in SECTIONS for path in sorted((HERE / section).glob("*.py"))]


def _row(name: str) -> Row:
    module = importlib.import_module(f"tests.programs.{name}")
    said = vars(module)
    title = (module.__doc__ or "").splitlines()[0].removesuffix(".")
    return Row(name, title, said.get("RANKS", 2), said.get("AGENTS", 0), said.get("OPTIONS", ()), said.get("WHY", ""))
