"""The examples in the docstrings of public names run, and end as they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDERS = ("collective", "compress", "collective.planning", "data", "doctor", "testbed", "torch")


def examples() -> list[tuple[str, str]]:
    modules = {folder: importlib.import_module(f"tweed.{folder}") for folder in FOLDERS}
    names = [(folder, name) for folder, module in modules.items() for name in module.__all__]
    return [(folder, name) for folder, name in names if ">>>" in (text_of(folder, name) or "")]


def text_of(folder: str, name: str) -> str | None:
    text: str | None = getattr(importlib.import_module(f"tweed.{folder}"), name).__doc__
    return text


@pytest.mark.parametrize(("folder", "name"), examples())
def test_an_example_ends_as_it_says(
    folder: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TWEED_CACHE", str(tmp_path))
    collective = importlib.import_module("tweed.collective")
    module = importlib.import_module(f"tweed.{folder}")
    space: dict[str, Any] = {"np": np, "collective": collective, "topology": collective.topology}
    space |= {public: getattr(module, public) for public in module.__all__}
    test = doctest.DocTestParser().get_doctest(text_of(folder, name) or "", space, name, None, None)
    found: list[str] = []
    doctest.DocTestRunner().run(test, out=found.append)
    assert not found, "".join(found)


def test_most_public_names_have_one() -> None:
    assert {folder for folder, _ in examples()} == set(FOLDERS) and len(examples()) >= 30
