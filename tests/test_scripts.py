"""The scripts in examples/ run as they say, and end with the model that they train."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scripts import as_scripts

SCRIPTS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_a_script_runs_as_it_says(script: Path) -> None:
    text = script.read_text()
    command = re.search(rf"^torchrun --nproc-per-node (\d) examples/{script.name}$", text, re.MULTILINE)
    assert command is not None, "the docstring says how to start it"
    models = as_scripts(text, int(command[1]))
    if "fsdp" not in script.stem:  # whose ranks have a shard each
        weights = models[0][:8]
        assert models[1] == models[0] or script.stem == "hub"
        assert all(abs(weight - 1) < 0.3 for weight in weights)
