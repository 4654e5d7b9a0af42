"""Runs torch's own `distributed_test` over tweed, beside Gloo."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.torch_suite import case, page, verdict
from tests.torch_suite.case import RANKS, Outcome
from tests.torch_suite.run import outcomes
from tests.torch_suite.verdict import EXPECTED, Expected

PAGE = Path(__file__).parents[2] / "docs" / "torch-suite.md"


def main() -> int:
    """0 if tweed passes what it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch_suite", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one test of each family, over tweed alone")
    parser.add_argument("--backend", default="tweed", help="for named tests; default: tweed")
    parser.add_argument("tests", nargs="*", help="only these, with their failures in full")
    given = parser.parse_args()
    expected = Expected.read()
    if given.tests:
        results = _run(given.tests, given.backend)
        return int(any(outcome.kind == "failed" for outcome in results.values()))
    if given.quick:
        return _judge(expected, _run(verdict.quick(expected), "tweed"))
    return _full(expected)


def _full(before: Expected) -> int:
    """Runs all tests over both backends, writes the page, and keeps the outcome if nothing got worse.

    What torch skips for Gloo it skips for the same reasons (no GPU, too few ranks) for tweed.
    """
    gloo = _run(case.names(), "gloo")
    skipped = {name: outcome for name, outcome in gloo.items() if outcome.kind == "skipped"}
    tweed = _run([name for name in gloo if name not in skipped], "tweed")
    results = {"gloo": gloo, "tweed": skipped | tweed}
    kinds = {backend: {name: o.kind for name, o in found.items()} for backend, found in results.items()}
    after = Expected(torch.__version__, kinds)
    PAGE.write_text(page.render(torch.__version__, RANKS, results))
    print(f"wrote {PAGE}")
    worse = _judge(Expected(before.torch, {**before.kinds, "gloo": kinds["gloo"]}), results["tweed"])
    if not worse:
        after.write()
        print(f"wrote {EXPECTED}")
    return worse


def _run(names: Sequence[str], backend: str) -> dict[str, Outcome]:
    """Runs and reports; what failed is printed in full at once."""
    found = {}
    for name, outcome in outcomes(names, backend):
        found[name] = outcome
        if outcome.kind == "failed":
            print(f"{backend} {name} failed:\n{outcome.why}\n", flush=True)
    counts = [
        f"{sum(o.kind == kind for o in found.values())} {kind}" for kind in ("passed", "failed", "skipped")
    ]
    print(f"{backend}: {', '.join(counts)}", flush=True)
    return found


def _judge(expected: Expected, results: dict[str, Outcome]) -> int:
    worse = verdict.regressions(expected, {name: outcome.kind for name, outcome in results.items()})
    for name in worse:
        print(f"should pass: {name}: {results[name].kind}: {results[name].why.strip().splitlines()[-1:]}")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
