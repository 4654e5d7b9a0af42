"""The public list: complete, documented, and light to import."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import tweed
import tweed.hooks.run  # a submodule named like a public function must not hide it


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def is_ours(value: object) -> bool:
    return not isinstance(value, ModuleType) and str(getattr(value, "__module__", "")).startswith("tweed")


def test_all_is_the_public_namespace() -> None:
    for name in tweed.__all__:
        getattr(tweed, name)
    public = {name for name, value in vars(tweed).items() if not name.startswith("_") and is_ours(value)}
    assert public == set(tweed.__all__) == set(dir(tweed))


@pytest.mark.parametrize("name", tweed.__all__)
def test_each_public_name_says_what_it_is_and_what_it_takes(name: str) -> None:
    thing = getattr(tweed, name)
    text = inspect.getdoc(thing) or ""
    parameters = inspect.signature(thing).parameters if inspect.isfunction(thing) else {}
    assert text
    assert [parameter for parameter in parameters if parameter not in text] == []


def test_importing_tweed_imports_neither_torch_nor_the_engine() -> None:
    assert (
        run_python("import sys, tweed; print({'torch', 'numpy', 'tweed._core'} & set(sys.modules))")
        == "set()"
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        tweed.nonsense  # noqa: B018


def test_attach_stays_the_function() -> None:
    assert callable(tweed.attach)


def test_folders_need_no_import_of_their_own() -> None:
    program = "import tweed; print(tweed.testbed.__name__, tweed.torch.__name__, tweed.collective.__name__)"
    assert run_python(program) == "tweed.testbed tweed.torch tweed.collective"


@pytest.mark.parametrize("autoload", ["0", "1"])
@pytest.mark.parametrize("first", ["tweed", "torch.distributed"])
def test_torch_knows_the_backend(autoload: str, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", autoload)
    program = f"import {first}, tweed, torch.distributed; print(torch.distributed.Backend.TWEED)"
    assert run_python(program) == "tweed"
