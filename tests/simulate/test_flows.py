"""Flows that share a link."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.simulate.flows import SharedLink


def ends(link: SharedLink) -> list[tuple[str, float]]:
    found = []
    while True:
        at, key = link.next_end()
        if key is None:
            return found
        link.stop(key, at)
        found.append((str(key), at))


def test_alone_a_flow_has_the_slower_of_two_links() -> None:
    for most, expected in ((5.0, 20.0), (50.0, 10.0)):
        link = SharedLink(10.0)
        link.start("a", 100, most, 0.0)
        assert ends(link) == [("a", expected)]


def test_what_a_slow_flow_leaves_the_others_share() -> None:
    link = SharedLink(10.0)
    for key, numbytes, most in (("slow", 20, 2.0), ("a", 40, 99.0), ("b", 80, 99.0)):
        link.start(key, numbytes, most, 0.0)
    # 2, 4 and 4; at 10 the first two have ended, and b has 40 left at 10 a second
    assert dict(ends(link)) == pytest.approx({"slow": 10.0, "a": 10.0, "b": 14.0})


def test_a_link_may_change_its_rate_and_a_flow_may_be_cut() -> None:
    link = SharedLink(10.0)
    link.start("a", 100, 99.0, 0.0)
    link.set_rate(5.0, 4.0)
    link.start("b", 100, 99.0, 8.0)
    link.stop("b", 12.0)
    assert ends(link) == [("a", pytest.approx(18.0))]
    assert link.next_end() == (math.inf, None)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 20)), min_size=1, max_size=8))
def test_bytes_are_conserved_and_the_link_is_full_while_it_can_be(flows: list[tuple[int, int]]) -> None:
    link = SharedLink(10.0)
    for key, (numbytes, most) in enumerate(flows):
        link.start(key, numbytes, most, 0.0)
    last = max(at for _, at in ends(link))
    least = max(
        sum(numbytes for numbytes, _ in flows) / 10, *(numbytes / most for numbytes, most in flows), 0
    )
    assert least - 1e-9 <= last <= 3 * least
