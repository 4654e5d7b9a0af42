"""What is expected, and what counts as a regression. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EXPECTED = Path(__file__).parent / "expected.json"

# Tests that Gloo passes and tweed does not, each with its reason.
EXCEPTIONS = {
    "test_ddp_logging_data_cpu": "torch's DDP logs the name `custom` for every backend that is not its own",
}


@dataclass(frozen=True)
class Expected:
    """The committed outcome of a full run: torch's version, and the kind of outcome by backend and test."""

    torch: str
    kinds: Mapping[str, Mapping[str, str]]

    def passed(self, backend: str) -> set[str]:
        """Names of the tests that `backend` passed."""
        return {name for name, kind in self.kinds.get(backend, {}).items() if kind == "passed"}

    def write(self, path: Path = EXPECTED) -> None:
        """Keeps it."""
        text = json.dumps({"torch": self.torch, "kinds": self.kinds}, indent=1, sort_keys=True)
        path.write_text(text + "\n")

    @classmethod
    def read(cls, path: Path = EXPECTED) -> Expected:
        """What was kept; nothing if there is no such file."""
        if not path.exists():
            return cls("", {})
        data = json.loads(path.read_text())
        return cls(data["torch"], data["kinds"])


def regressions(expected: Expected, actual: Mapping[str, str]) -> list[str]:
    """Tests of `actual` (kind by name, over tweed) that should have passed, as far as they were run.

    Those are what tweed passed before, and what Gloo passes; `EXCEPTIONS` are not.
    """
    due = (expected.passed("tweed") | expected.passed("gloo")) - set(EXCEPTIONS)
    return sorted(name for name in due & set(actual) if actual[name] != "passed")


def quick(expected: Expected) -> list[str]:
    """A part that takes about half a minute: of the tests that tweed passes, one of each family.

    A family is what a name begins with, such as `all_reduce`, `reduce` or `ddp`.
    """
    families: dict[str, str] = {}
    for name in sorted(expected.passed("tweed")):
        words = name.split("_")[1:]
        families.setdefault("_".join(words[: 2 if words[0] == "all" else 1]), name)
    return sorted(families.values())
