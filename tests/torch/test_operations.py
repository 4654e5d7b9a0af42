"""Operations x dtypes x bindings x transports on real ranks, against a naive computation."""

from __future__ import annotations

import pytest

from tests.torch.naive import check
from tests.torch.operations import TABLE, run_table
from tweed.testbed import run_ranks

PLACES = [
    ("native", 2, "auto"),
    ("native", 3, "auto"),
    ("native", 4, "auto"),
    ("native", 3, "tcp"),
    ("python", 2, "auto"),
    ("python", 3, "tcp"),
    ("native", 3, "ltp"),
]


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: "{}-{}-{}".format(*place))
def failures(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    """Each rank's failures by case; one start of ranks for the whole table."""
    binding, size, transport = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWEED_BINDING", binding)
        patch.setenv("TWEED_TRANSPORT", transport)
        patch.setenv("TWEED_WIRE_ONLY", "1" if transport == "ltp" else "0")
        return run_ranks(run_table, size, backend="tweed")


@pytest.mark.parametrize("name", TABLE)
def test_operation(name: str, failures: list[dict[str, str]]) -> None:
    check(name, failures)
