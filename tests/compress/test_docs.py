"""The manual names every part of the stage, and its example is a compressor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.compress.group import Group
from tests.compress.table import SPEC, TABLE, Speaker, gaussian
from tests.compress.test_memories import MEMORIES
from tweed.compress import Compressor, ErrorFeedback, Values

MANUAL = (Path(__file__).parents[2] / "docs/compression.md").read_text()


def test_the_tables_of_the_manual_name_all_parts() -> None:
    rows = {match[1] for match in re.finditer(r"^\| `(\w+)\(", MANUAL, re.MULTILINE)}
    assert rows == {type(part).__name__ for part in [*TABLE, *MEMORIES]}


def test_its_example_keeps_the_contract() -> None:
    code = next(block for block in re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL) if "class " in block)
    names = {"dataclass": dataclass, "Values": Values}
    exec(code, names)
    method = names["EverySecond"]()
    assert isinstance(method, Compressor)
    speaker, error, value = Speaker(method), torch.zeros(SPEC.numel), gaussian()
    for _ in range(3):
        whole = value + error
        assert torch.equal(speaker.says(value, error) + error, whole)
        assert speaker.said_bytes == method.packet_bytes(SPEC)
    placed = Group(ErrorFeedback(method), SPEC, 2).exchange([value, value])
    assert torch.equal(placed[0].delta[::2], value[::2])
