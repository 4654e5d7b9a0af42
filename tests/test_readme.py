"""The example of the README runs, word for word."""

from __future__ import annotations

import re
from pathlib import Path

from tests.scripts import as_scripts

README = Path(__file__).parents[1] / "README.md"


def _example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1, "the README has one example"
    return str(blocks[0])


def test_the_example_ends_with_one_model_on_all_ranks() -> None:
    first, second = as_scripts(_example(), 2)
    assert first == second


def test_the_example_is_short() -> None:
    assert len([line for line in _example().splitlines() if line]) <= 14
