"""What `mkdocs` is told by functions: the order of pages, the first page, and links that leave the site."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Sections by name, and their pages in order. Pages that are in none come last.
SECTIONS = {
    "The first hour": ["two-machines", "wheels", "doctor", "settings", "errors"],
    "Use": ["train", "frameworks", "programs", "ray", "elastic", "hub", "compression", "composition", "plan"],
    "Networks and faults": [
        "deadlines",
        "faults",
        "reliability",
        "security",
        "metrics",
        "testbed",
        "topology",
    ],
    "How it is built": ["update", "protocol", "benchmarks", "torch-suite", "dependencies", "glossary"],
}


def on_files(files: Files, config: Any) -> Files:
    """Adds the first page, which is the README."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    pages = [file.src_uri for file in files.documentation_pages()]
    config.nav = nav([page for page in pages if page != "index.md"])
    return files


def nav(pages: list[str]) -> list[Any]:
    """The order of the site.

    Args:
      pages: paths within docs/.
    """
    sections = {name: [f"{page}.md" for page in wanted] for name, wanted in SECTIONS.items()}
    named = {page for wanted in sections.values() for page in wanted}
    if missing := named - set(pages):
        raise ValueError(f"tools/site_pages.py names pages that are not there: {sorted(missing)}")
    decisions = sorted(page for page in pages if page.startswith("decisions/"))
    others = sorted(page for page in pages if page not in named and page not in decisions)
    found = [{name: wanted} for name, wanted in sections.items()]
    return ["index.md", *found, {"Systems and parts": others}, {"Decisions": decisions}]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites the links of a page."""
    name = page.file.src_uri
    return rewritten(markdown, "" if name == "index.md" else str(PurePosixPath("docs", name).parent))


def rewritten(markdown: str, folder: str) -> str:
    """Files of the repository that are no pages are named, not linked: the site has no address for them.

    A link that leads nowhere stays as it is, for mkdocs to find.

    Args:
      folder: where the page lies in the repository; the site has the pages of docs/ at its root.
    """

    def link(found: re.Match[str]) -> str:
        text, (path, sign, anchor) = found[1], found[2].partition("#")
        target = (ROOT / folder / path).resolve()
        if not path or "://" in path or not target.exists():
            return found[0]
        if target.is_file() and target.is_relative_to(DOCS):
            here = DOCS if folder == "" else ROOT / folder
            return f"[{text}]({os.path.relpath(target, here)}{sign}{anchor})"
        return f"{text} (`{target.relative_to(ROOT)}`)"

    return re.sub(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)", link, markdown)
