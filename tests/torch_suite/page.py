"""The page docs/torch-suite.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.torch_suite.case import Outcome
from tests.torch_suite.verdict import EXCEPTIONS

_ABOUT = """\
`make torch-suite` runs `torch.testing._internal.distributed.distributed_test` of torch {torch} over Gloo
and over tweed, with {ranks} ranks and CPU tensors. The tests are torch's, unchanged. That file knows a fixed
set of backends, so it is told that it tests Gloo, and gets tweed when it asks for a process group of Gloo.
Each test runs in freshly forked processes; also those that torch's CI gives to MPI alone, and those that it
skips below 8 ranks. The command fails if tweed does not pass what it passed before, or what Gloo passes.
"""

Results = Mapping[str, Mapping[str, Outcome]]


def render(torch: str, ranks: int, results: Results) -> str:
    """Markdown with every test that one of the backends ran."""
    gloo, tweed = results["gloo"], results["tweed"]
    return "\n".join([*_head(torch, ranks, gloo, tweed), *_table(gloo, tweed), *_skipped(gloo)]) + "\n"


def _head(torch: str, ranks: int, gloo: Mapping[str, Outcome], tweed: Mapping[str, Outcome]) -> Iterator[str]:
    passed = {name for name, outcome in tweed.items() if outcome.kind == "passed"}
    due = {name for name, outcome in gloo.items() if outcome.kind == "passed"}
    yield "# torch's own tests\n"
    yield _ABOUT.format(torch=torch, ranks=ranks)
    yield f"Of {len(tweed)} tests, Gloo passes {len(due)} and tweed {len(passed)}."
    missing = sorted(due - passed)
    if missing:
        yield "\nWhat Gloo passes and tweed does not:\n"
        yield from (f"- `{name}`: {EXCEPTIONS.get(name, 'no reason known')}" for name in missing)


def _table(gloo: Mapping[str, Outcome], tweed: Mapping[str, Outcome]) -> Iterator[str]:
    yield "\n| test | Gloo | tweed |"
    yield "|---|---|---|"
    for name in sorted(tweed):
        kinds = gloo[name].kind, tweed[name].kind
        if kinds != ("skipped", "skipped"):
            yield f"| `{name}` | {kinds[0]} | {kinds[1]} |"


def _skipped(gloo: Mapping[str, Outcome]) -> Iterator[str]:
    reasons: dict[str, int] = {}
    for outcome in gloo.values():
        if outcome.kind == "skipped":
            reason = outcome.why.split("\n")[0] or "no reason given"
            reasons[reason] = reasons.get(reason, 0) + 1
    yield "\nThe others are skipped by torch on a machine like this one:\n"
    yield from (
        f"- {count}: {reason}" for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1])
    )
