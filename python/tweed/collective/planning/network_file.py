"""Where the network of a plan comes from: a file that describes it, or what `tweed doctor` measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tweed._core import Topology
from tweed.collective import topology
from tweed.collective.planning.predict import USUAL, Host
from tweed.errors import UsageError

PAYLOAD = replace(USUAL, header=0)
"""For networks that were measured between ranks: what was counted there is payload."""


def read(path: Path) -> tuple[Topology, Host]:
    """The network in a file, and the host to predict for.

    The file is one of `topology.write` (docs/topology.md) or of `tweed doctor --output`.

    Raises: UsageError if it is neither; names the field that is wrong.
    """
    found = _object(path)
    if "picks" in found:
        raise UsageError(f"{path} is a plan, not a network; TWEED_PLAN={path} runs it")
    if not {"findings", "matrix"} <= found.keys():
        return topology.read(path), USUAL
    if found["matrix"] is None:
        raise UsageError(
            f"{path} is what `tweed doctor` found on one host: measure between ranks (--ranks, torchrun)"
        )
    return measured(found["matrix"]), PAYLOAD


def measured(matrix: Mapping[str, Any]) -> Topology:
    """The network behind a doctor's matrix, in its plain form.

    Raises: UsageError if something is missing or cannot be.
    """
    try:
        return topology.measured(matrix)
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"this is not what `tweed doctor` measures: {error!r}") from error


def _object(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none, which is `topology.read`'s to judge."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
