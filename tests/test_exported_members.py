"""The public list: complete, documented, and light to import."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import tweed
import tweed.attach.run  # a submodule named like a public function must not hide it


def run_python(program: str, **environment: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PATH": "", **environment}
    )
    return done.stdout.strip()


def test_all_is_the_public_namespace() -> None:
    public = {name for name, value in vars(tweed).items() if not name.startswith("_") and is_ours(value)}
    assert public <= set(tweed.__all__)
    assert sorted(tweed.__all__) == sorted(set(tweed.__all__)) == sorted(dir(tweed))


def is_ours(value: object) -> bool:
    return not isinstance(value, ModuleType) and str(getattr(value, "__module__", "")).startswith("tweed")


@pytest.mark.parametrize("name", tweed.__all__)
def test_each_public_name_is_there_and_documented(name: str) -> None:
    documentation = getattr(tweed, name).__doc__
    assert documentation and documentation[0].isupper()


@pytest.mark.parametrize("folder", ["collective", "testbed", "torch"])
def test_folders_need_no_import_of_their_own(folder: str) -> None:
    program = f"import tweed; print(tweed.{folder}.__name__)"
    assert run_python(program, PYTHONPATH=":".join(sys.path)) == f"tweed.{folder}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        tweed.nonsense  # noqa: B018


def test_attach_stays_the_function() -> None:
    assert callable(tweed.attach)


def test_importing_tweed_does_not_import_torch() -> None:
    assert (
        run_python("import sys, tweed; print('torch' in sys.modules)", PYTHONPATH=":".join(sys.path))
        == "False"
    )
