"""Writes docs/errors.md from the docstrings of python/tweed/errors.py: python -m tools.errors_page"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tweed import errors

PAGE = Path(__file__).parents[1] / "docs/errors.md"
_HEAD = """# Errors by name

Every error that tweed raises is one of these; all are `RuntimeError`s. Beneath `UsageError` nothing was sent.
`python -m tools.errors_page` writes this page from [errors.py](../python/tweed/errors.py).
"""


def page() -> str:
    """All classes, in the order in which they stand."""
    found = [
        one for one in vars(errors).values() if inspect.isclass(one) and one.__module__ == errors.__name__
    ]
    return "\n".join([_HEAD, *map(_section, found)])


def _section(error: type[errors.TweedError]) -> str:
    cause, _, remedy = inspect.cleandoc(error.__doc__ or "").partition("\n\nRemedy: ")
    if not remedy:
        raise ValueError(f"the docstring of {error.__name__} has no remedy")
    bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
    what = f"A kind of {bases}. {_linked(cause)}"
    return f"## {error.__name__}\n\n{what}\n\n**Remedy:** {_linked(remedy)}\n"


def _linked(text: str) -> str:
    """In one line per paragraph, with names of pages as links."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return re.sub(r"docs/(\w+\.md)", r"[\1](\1)", "\n\n".join(paragraphs))


if __name__ == "__main__":
    PAGE.write_text(page())
