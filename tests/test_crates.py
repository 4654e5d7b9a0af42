"""What the locked Rust crates bring: whence, under which licences, and which of them twice."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

HOUSE = Path(__file__).parents[1]

# Licences that ask for no more than their text, and go together with Apache-2.0.
LICENCES = {"Apache-2.0", "Apache-2.0 WITH LLVM-exception", "MIT", "ISC", "BSD-3-Clause", "Unicode-3.0"}

# Crates in more than one version, and who holds on to the older ones. A new one is a line here, or an update.
TWICE = {
    "chacha20": "snow 0.10 has 0.9; rand, which proptest brings, 0.10",
    "cpufeatures": "as chacha20",
    "getrandom": "ring 0.17 has 0.2; proptest's rand and tempfile have later ones",
    "syn": "some derive macros have moved on, and others have not",
}


@cache
def _crates() -> list[dict[str, Any]]:
    """All crates of the lock but those for other systems, which are not there to be read."""
    words = "cargo metadata --offline --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu"
    done = subprocess.run(words.split(), cwd=HOUSE, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["packages"]
    return found


def _allowed(licence: str) -> bool:
    """Whether one may take a crate under `LICENCES`: an expression of AND, OR and brackets."""
    tokens = re.findall(r"[()]|AND|OR|[^()\s]+(?: WITH [^()\s]+)?", licence.replace("/", " OR "))
    words = {"AND": "and", "OR": "or", "(": "(", ")": ")"}
    return bool(eval(" ".join(words.get(token, str(token in LICENCES)) for token in tokens)))


def test_expressions_of_licences_are_understood() -> None:
    assert _allowed("MIT/GPL-3.0") and _allowed("(MIT OR GPL-3.0) AND ISC")
    assert not _allowed("MIT AND GPL-3.0") and not _allowed("Apache-2.0 WITH else")


def test_every_crate_has_a_licence_that_goes_with_ours() -> None:
    assert {c["name"]: c["license"] for c in _crates() if not _allowed(c["license"] or "none")} == {}


def test_every_crate_comes_from_the_registry() -> None:
    foreign = [c["name"] for c in _crates() if c["source"] and not c["source"].startswith("registry+")]
    own = [c["name"] for c in _crates() if not c["source"] and not c["name"].startswith("tweed-")]
    assert foreign + own == []


def test_no_crate_comes_twice_without_a_reason() -> None:
    versions = defaultdict(set)
    for crate in _crates():
        versions[crate["name"]].add(crate["version"])
    assert {name for name, found in versions.items() if len(found) > 1} == set(TWICE)
