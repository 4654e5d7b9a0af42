"""The public list of tweed: complete, documented, small, and light to import."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import tweed


def test_the_list_is_sorted_and_small() -> None:
    assert tweed.__all__ == sorted(set(tweed.__all__))
    assert len(tweed.__all__) <= 60


@pytest.mark.parametrize("name", tweed.__all__)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    thing = getattr(tweed, name)
    assert (inspect.getdoc(thing) or "").strip(), f"tweed.{name} has no docstring"


@pytest.mark.parametrize("name", [name for name in tweed.__all__ if inspect.isfunction(getattr(tweed, name))])
def test_a_public_function_explains_its_parameters(name: str) -> None:
    function = getattr(tweed, name)
    text = inspect.getdoc(function) or ""
    unnamed = [parameter for parameter in inspect.signature(function).parameters if parameter not in text]
    assert unnamed == []


def test_importing_tweed_imports_neither_torch_nor_the_engine() -> None:
    code = "import sys, tweed; print(*{'torch', 'numpy', 'tweed._core'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
