"""The documentation site: its pages, their links, and the page of errors."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import errors_page

ROOT = Path(__file__).parents[1]
needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None and "CI" not in os.environ,
    reason="mkdocs is not installed: uv pip install --group docs",
)


def test_the_page_of_errors_is_what_the_docstrings_say() -> None:
    assert errors_page.PAGE.read_text() == errors_page.page(), "python -m tools.errors_page writes it"


@needs_mkdocs
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Documentation built" in done.stderr  # warnings count only where they are printed
    _has_pages_and_needs_no_network(tmp_path)
    _has_every_public_name(tmp_path)


def _has_pages_and_needs_no_network(site: Path) -> None:
    index = (site / "index.html").read_text()
    assert 'href="two-machines.html"' in index
    assert (site / "errors.html").read_text().count("Remedy:") > 10
    # Nothing is loaded from elsewhere.
    assert re.findall(r"""<(?:script|link|img)[^>]*="(?:https?:)?//[^"]*""", index) == []


def _has_every_public_name(site: Path) -> None:
    from tools.site_pages import PUBLIC, exported

    inits = (ROOT / "python/tweed").glob("*/__init__.py")
    folders = {f"tweed.{init.parent.name}" for init in inits if exported(f"tweed.{init.parent.name}")}
    assert folders - set(PUBLIC) == set()
    pages = {module: (site / f"api/{module}.html").read_text() for module in PUBLIC}
    names = {module: exported(module) for module in PUBLIC}
    assert len(names["tweed"]) > 20
    assert [
        f"{module}.{name}"
        for module, page in pages.items()
        for name in names[module]
        # A name that a module within has too stands at its own place.
        if f'id="{module}.{name}"' not in page and f'id="{module}.{name}.{name}"' not in page
    ] == []
    assert "The transfers, ordered by step." in pages["tweed.collective"]  # said in Rust only


@needs_mkdocs
def test_docstrings_keep_their_paragraphs_and_columns() -> None:
    from tools.site_docstrings import readable

    text = "One.\n\nrun       what runs\nserving   `serve`\n\nRaises: Lost if\n  late.\nCost: 1 s."
    columns = "    run       what runs\n    serving   `serve`\n"
    assert readable(text) == f"One.\n\n{columns}\n\n**Raises:** Lost if late.\n\n\n**Cost:** 1 s.\n"


@needs_mkdocs
def test_links_to_what_is_no_page_are_named_and_those_that_lead_nowhere_stay() -> None:
    from tools.site_pages import nav, rewritten

    line = (
        "[a](doctor.md#what) [b](../python/tweed/errors.py) [c](gone.md) [d](https://x.org) ![e](update.svg)"
    )
    assert rewritten(line, "docs") == (
        "[a](doctor.md#what) b (`python/tweed/errors.py`) [c](gone.md) [d](https://x.org) ![e](update.svg)"
    )
    assert rewritten("[a](docs/doctor.md) [b](docs/decisions)", "") == "[a](doctor.md) b (`docs/decisions`)"
    assert rewritten("[a](../ray.md)", "docs/decisions") == "[a](../ray.md)"
    with pytest.raises(ValueError, match="names pages that are not there"):
        nav(["new.md"])
