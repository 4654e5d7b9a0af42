"""Docstrings of this house as `griffe` reads them, for the reference of the site."""

from __future__ import annotations

import re
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import griffe

_BINDING = Path(__file__).parents[1] / "crates/py/src"
_ITEM = re.compile(
    r"(?P<doc>(?:^ *///.*\n)+)(?:^ *#\[.*\n)*^ *(?:pub )?(?:fn|struct) (?P<name>\w+)|^impl (?P<impl>\w+)",
    re.MULTILINE,
)
_IN_LINE = re.compile(r"^(Raises|Returns|Cost|Source|Remedy): (.+(?:\n +.+)*)$", re.MULTILINE)
_COLUMNS = re.compile(r"^(?:\S.*? {3,}\S.*(?:\n|\Z)(?: +\S.*(?:\n|\Z))*)+", re.MULTILINE)


class HouseDocstrings(griffe.Extension):  # type: ignore[misc]
    """Hands all docstrings through `readable`, and finds those that stand elsewhere."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each object that it has read."""
        if obj.docstring:
            obj.docstring.value = readable(obj.docstring.value)
        elif text := _elsewhere(obj):
            obj.docstring = griffe.Docstring(readable(text), parent=obj)


def _elsewhere(obj: griffe.Object) -> str:
    """Of the extension module the comments in Rust; of a constant those before it that begin with `#:`."""
    if obj.module.name == "_core":
        return _of_binding().get(obj.path.removeprefix(obj.module.path), "")
    if not obj.is_attribute or not obj.parent or not obj.parent.is_module or not obj.lineno:
        return ""
    before = reversed(obj.lines_collection[obj.filepath][: obj.lineno - 1])
    comment = takewhile(lambda line: line.startswith("#:"), before)
    return "\n".join(reversed([line.removeprefix("#:").strip() for line in comment]))


@cache
def _of_binding() -> dict[str, str]:
    """Comments of classes by ".Class", those of members by ".Class.member"."""
    found: dict[str, str] = {}
    for file in sorted(_BINDING.rglob("*.rs")):
        scope = ""
        for item in _ITEM.finditer(file.read_text()):
            name = f".{(item['name'] or item['impl']).removeprefix('Py')}"
            if item["impl"]:
                scope = name
            else:
                text = re.sub(r"^ */// ?", "", item["doc"], flags=re.MULTILINE)
                found[name if name[1].isupper() else scope + name] = text.strip()
    return found


def readable(text: str) -> str:
    """Text after "Raises:" in its line is a paragraph of its own, and what stands in columns is kept so.

    Args:
      text: a docstring, without the indentation that all its lines have.
    """
    text = _COLUMNS.sub(lambda found: "".join(f"    {line}\n" for line in found[0].splitlines()), text)
    text = _IN_LINE.sub(lambda found: f"\n**{found[1]}:** {' '.join(found[2].split())}\n", text)
    return re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
