"""What `mkdocs` is told by functions: the order of pages, the first page, and links that leave the site."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Sections, by what a reader wants, and their pages in order. Pages that are in none are of systems.
SECTIONS = {
    "Start": ["wheels", "train", "footguns", "settings", "errors", "status"],
    "Choose": ["choosing", "compression", "composition", "plan", "topology", "gradient_order"],
    "Two machines": ["two-machines", "doctor", "security", "metrics", "deadlines", "faults", "testbed"],
    "Trainers": ["frameworks", "programs"],
    "Members": ["elastic"],
    "Hub": ["hub", "rules"],
    "Ray": ["ray", "hoplite"],
    "Tasks": ["tasks", "double_ml"],
    "Inside": ["update", "protocol", "reliability", "benchmarks", "torch-suite", "dependencies", "glossary"],
}
#: Modules with public names, a page of the reference each. A test holds them to the `__all__` of all folders.
PUBLIC = [
    "tweed",
    *(f"tweed.{name}" for name in ("recipes", "errors", "cadence", "compress", "order", "collective")),
    "tweed.collective.topology",
    *(f"tweed.{name}" for name in ("transport", "aggregate", "attach", "elastic", "server", "torch", "ray")),
    *(f"tweed.integrations.{name}" for name in ("lightning", "accelerate", "transformers", "flower")),
    *(
        f"tweed.workloads.{name}"
        for name in ("tasks", "coded", "double_ml", "fixed_points", "split", "target_propagation")
    ),
    "tweed.data",
    *(f"tweed.{name}" for name in ("simulate", "testbed", "metrics")),
    *(f"tweed.{name}" for name in ("collective.planning", "doctor", "report", "systems")),
]


def on_files(files: Files, config: Any) -> Files:
    """Adds the first page, which is the README, and the reference, which `mkdocstrings` fills."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    pages = [file.src_uri for file in files.documentation_pages()]
    reference = {module: f"api/{module}.md" for module in PUBLIC}
    for module, page in reference.items():
        files.append(File.generated(config, page, content=_reference(module)))
    named = [{module: page} for module, page in reference.items()]
    config.nav = [*nav([page for page in pages if page != "index.md"]), {"Reference": named}]
    return files


def _reference(module: str) -> str:
    """A page of the reference. What has the name of a module beside it is asked for by its own path: `griffe`
    takes the name for the module's. What a class of `tweed` itself has from its base is on its page too."""
    within = {path.stem for path in (ROOT / "python" / module.replace(".", "/")).glob("*")}
    shared = [name for name in exported(module) if name in within]
    more = [f"::: {module}.{name}.{name}\n    options: {{heading_level: 2}}\n" for name in shared]
    options = "    options: {inherited_members: true}\n" if module == "tweed" else ""
    return "\n".join([f"::: {module}\n{options}", *more])


def exported(module: str) -> list[str]:
    """`__all__` of a folder of python/tweed; nothing of a file. Imports nothing."""
    init = ROOT / "python" / module.replace(".", "/") / "__init__.py"
    text = init.read_text() if init.exists() else ""
    found = re.search(r"^__all__ = (\[.*?\])", text, re.DOTALL | re.MULTILINE)
    return list(ast.literal_eval(found[1])) if found else []


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
    return ["index.md", *found[:-1], {"Systems": others}, found[-1], {"Decisions": decisions}]


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

    return re.sub(r"\[([^\[\]]*)\]\(([^()\s]+)\)", link, markdown)
