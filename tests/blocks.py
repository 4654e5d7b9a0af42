"""The code blocks of the README and of docs/: found, run on ranks, or looked into without running them."""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import tweed

ROOT = Path(__file__).parents[1]
#: What pages take as given, and what their blocks before have defined. What attaches has a new model.
GIVEN = """
import signal, subprocess
from dataclasses import dataclass
import numpy as np, torch, tweed, tweed.collective, tweed.elastic, tweed.ray, tweed.torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.functional import mse_loss as loss
from tweed import Strategy
from tweed.aggregate import *
from tweed.cadence import *
from tweed.collective import *
from tweed.compress import *
from tweed.data.coding import *
from tweed.data.sampler import *
from tweed.elastic import *
from tweed.order import *
from tweed.recipes import *
from tweed.simulate.elastic import train
from tweed.testbed import run_ranks
from tweed.testbed.faults import Plan
from tweed.testbed.fault_injector import FaultInjector
from tweed.torch import Options
from tweed.transport import *

torch.manual_seed(0)
x, y = trusted_x, trusted_y = torch.randn(16, 8), torch.randn(16, 1)
my_part_of_the_data = batches = my_data = [(x, y)] * 2
steps, lr, workers = 2, 0.1, 4
evaluate = lambda model: model(x)
rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
"""
FRESH = """
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

_OF_RANKS = re.compile(r"\b(attach|rank)\b")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of `page` at `line`; `language` is what stands behind the fence."""

    page: str
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        """For people."""
        return f"{self.page}:{self.line}"


def blocks() -> list[Block]:
    """All, by page."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [block for page in pages for block in _of_page(page)]


def _of_page(page: Path) -> Iterator[Block]:
    text, name = page.read_text(), str(page.relative_to(ROOT))
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(name, text.count("\n", 0, found.start()) + 1, found[1], found[2])


# --- Run, as a rank.


def run_all(rank: int, size: int, some: Sequence[Block], folder: str) -> list[str]:
    """Runs Python blocks one after the other; those that are no matter of ranks, at rank 0 alone.

    Returns: by block what went wrong, or "".
    """
    os.chdir(folder)
    attach, attached = tweed.attach, list[Any]()

    def noted(*args: Any, **settings: Any) -> Any:
        attached.append(attach(*args, **settings))
        return attached[-1]

    tweed.attach = noted
    spaces: dict[str, dict[str, Any]] = {block.page: {} for block in some}
    return [
        _run(block.text, spaces[block.page], attached) if rank == 0 or _OF_RANKS.search(block.text) else ""
        for block in some
    ]


def _run(text: str, space: dict[str, Any], attached: list[Any]) -> str:
    try:
        exec(FRESH if space else GIVEN + FRESH, space)
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            for statement in ast.parse(text).body:
                if "tweed.attach(" in ast.unparse(statement):
                    _detach(attached)
                    exec(FRESH, space)
                exec(compile(ast.Module([statement], []), "block", "exec"), space)
                space |= {"run": attached[-1]} if attached else {}
            if "run.detach()" not in text:
                _detach(attached, served="run.serve(" in text)
    except Exception:  # noqa: BLE001 - whatever it is, the test shows it
        return traceback.format_exc()
    finally:
        attached.clear()
    return ""


def _detach(attached: list[Any], served: bool = False) -> None:
    """Ends what statements before have attached. A hub of which no more is shown hears that all is over."""
    for run in attached:
        if run.strategy.hub and run.serves and not served:
            run.serve()
        run.detach()
    attached.clear()


# --- Look into, without running.


def unknown(text: str, named: Sequence[str] = ()) -> list[str]:
    """What a Python block takes that is not there: names, members of modules, parameters of functions.

    Args:
      named: what nothing defines, as the page leaves it to its reader.
    """
    space: dict[str, Any] = {}
    exec(GIVEN + FRESH, space)
    tree = ast.parse(text)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)} | set(named)
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    imports = list(_imported(tree, space))
    known = {*space, *own, *dir(builtins)}
    for name in own:
        space.pop(name, None)
    return [*imports, *sorted({node.id for node in names} - known), *_calls(tree, space)]


def _imported(tree: ast.AST, space: dict[str, Any]) -> Iterator[str]:
    """Imports what is tweed's. Other people's frameworks are slow to import: their names are None."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            space |= {alias.asname or alias.name.partition(".")[0]: None for alias in node.names}
            try:
                if "tweed" in ast.unparse(node) and "integrations" not in ast.unparse(node):
                    exec(ast.unparse(node), space)
            except ImportError as error:
                yield str(error)


def _calls(tree: ast.AST, space: Mapping[str, Any]) -> Iterator[str]:
    """Calls by names that are in `space`: those that are not there, or do not have these parameters."""
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        name = ast.unparse(call.func)
        root, *path = name.split(".") if re.fullmatch(r"[\w.]+", name) else [""]
        if space.get(root) is None:
            continue
        try:
            signature = inspect.signature(reduce(getattr, path, space[root]))
            signature.bind_partial(*call.args, **{one.arg: 0 for one in call.keywords if one.arg})
        except (AttributeError, TypeError) as error:
            yield f"{name}: {error}"
        except ValueError:
            continue  # written in C, and does not tell
