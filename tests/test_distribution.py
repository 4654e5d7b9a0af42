"""What users type to install tweed works: it names tweed-train or a wheel, and extras that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tweed import distribution
from tweed.distribution import install_from, install_version

HOUSE = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
#: A decision tells what was before.
TOLD = [
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "python/**/*.py",
        "tests/**/*.py",
        "bench/*.py",
        "tools/*.*",
        "Makefile",
    )
    for path in HOUSE.glob(pattern)
    if path != Path(__file__)
]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({}, "pip install 'WHEEL[ray]', where WHEEL is the path of tweed's wheel"),
        ({"url": "https://index.invalid/a.whl"}, "pip install 'WHEEL[ray]', where WHEEL is the path of"),
        (
            {"url": "file:///a%20b/tweed_train-1.whl", "archive_info": {}},
            "pip install '/a b/tweed_train-1.whl[ray]'",
        ),
        ({"url": "file:///a", "dir_info": {"editable": True}}, "pip install --editable '/a[ray]'"),
        ({"url": "file:///a", "dir_info": {}}, "pip install '/a[ray]'"),
    ],
)
def test_an_extra_comes_from_where_tweed_came_from(origin: dict[str, object], command: str) -> None:
    assert install_from(origin, "ray").startswith(command)


def test_a_version_of_tweed_is_a_wheel() -> None:
    assert install_version("tweed", "0.2.0") == "pip install tweed_train-0.2.0-*.whl"
    assert install_version("torch", "2.15.0") == "pip install torch==2.15.0"


def test_the_name_is_the_projects() -> None:
    assert PROJECT["name"] == distribution.NAME
    assert distribution.version() == PROJECT["version"], "make build"


def test_no_text_names_somebody_elses_package_to_pip() -> None:
    found = re.compile(r"pip install\b[^`,\n]*[ ']tweed(?![\w.-])")
    assert found.search("pip install 'tweed[ray]'") and found.search("pip install -U tweed==1")
    lines = [f"{path}: {line}" for path in TOLD for line in path.read_text().splitlines()]
    assert not [line for line in lines if found.search(line)]


def test_extras_that_are_named_are_there() -> None:
    text = "\n".join(path.read_text() for path in TOLD)
    named = {*re.findall(r"WHEEL\[(\w+)\]", text), *re.findall(r"install_extra\(['\"](\w+)['\"]\)", text)}
    assert len(named) > 5
    assert named <= set(PROJECT["optional-dependencies"])
